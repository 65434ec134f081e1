"""`python -m benchmarks.queue.huey_consumer FILE WORKERS` consumes until it is killed.

Apart from the tasks: Huey knows a task by the module it was defined in, which must not be this one.
"""

import sys
from pathlib import Path

from benchmarks.queue.huey_tasks import queue

if __name__ == "__main__":
    queue(Path(sys.argv[1])).create_consumer(
        workers=int(sys.argv[2]), worker_type="thread", periodic=False, initial_delay=0.001
    ).run()
