"""``python -m worker``, watched: its arguments are the directory that arms it, and the word by
which tests know a worker's process."""

import sys

from tests.reliability.dying import in_worker
from worker.main import main

if __name__ == "__main__":
    in_worker(sys.argv[1])
    sys.exit(main())
