"""``python -m worker``: started by the parent, with the launch record on standard input."""

import sys

from worker.main import main

if __name__ == "__main__":
    sys.exit(main())
