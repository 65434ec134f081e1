"""``mlxq``, which on SIGUSR1 writes the names of all its modules to the file in MODULES_FILE."""

import os
import signal
import sys
from pathlib import Path
from types import FrameType


def tell(_number: int, _frame: FrameType | None) -> None:
    draft = Path(os.environ["MODULES_FILE"] + ".draft")
    loaded = [name for name, module in sys.modules.items() if module]  # None: kept from loading
    draft.write_text("\n".join(sorted(loaded)))
    draft.rename(os.environ["MODULES_FILE"])


if __name__ == "__main__":
    signal.signal(signal.SIGUSR1, tell)
    from app.cli.main import main

    main()
