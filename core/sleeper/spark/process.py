"""The instance of a Python process of Spark, which runs many tasks one after another."""

import os
from functools import lru_cache

from sleeper.instance import Instance
from sleeper.opening import open_instance
from sleeper.retries import retry_as_job

_AWS_PREFIX = "aws:"


@lru_cache(maxsize=8)
def cached_instance(where: str) -> Instance:
    """Returns the instance, opened once per process, which retries requests as jobs do."""
    retry_as_job()
    return open_instance(where)


def absolute(where: str) -> str:
    """Returns the instance's place for processes with other working folders."""
    return where if where.startswith(_AWS_PREFIX) else os.path.abspath(where)
