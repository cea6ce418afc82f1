"""The instance of a Python process of Spark's, which runs many tasks one after another."""

import os
from functools import lru_cache

from sleeper.instance import Instance
from sleeper.opening import open_instance
from sleeper.retries import retry_as_job

_NOT_A_FOLDER = "aws:"


@lru_cache(maxsize=8)
def opened(where: str) -> Instance:
    """The instance, opened once for the life of the process, whose tasks are jobs."""
    retry_as_job()
    return open_instance(where)


def absolute(where: str) -> str:
    """The same instance for processes that run elsewhere."""
    return where if where.startswith(_NOT_A_FOLDER) else os.path.abspath(where)
