"""The import path of Python processes that tests start: without pandas (`startup/`)."""

import os
from pathlib import Path

VARIABLE = "PYTHONPATH"
_STARTUP = Path(__file__).with_name("startup")


def python_path(*folders: Path | str) -> str:
    """Returns a value of `PYTHONPATH` for a process that imports from these folders."""
    return os.pathsep.join(str(folder) for folder in (_STARTUP, *folders) if folder)
