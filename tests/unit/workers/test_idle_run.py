"""A run until no work is left starts no processes without work."""

from pathlib import Path

import pytest

from sleeper.jobs.queue import QueueName
from sleeper.local.instance import create_local_instance, open_local_instance
from sleeper.workers import pool as pools
from sleeper.workers.runner import run_instance


def test_a_run_without_work_starts_no_worker(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class StartedError(Exception):
        pass

    def start(*_: object) -> None:
        raise StartedError

    monkeypatch.setattr(pools, "_start_worker", start)
    create_local_instance(tmp_path / "instance", "test", {})
    instance = open_local_instance(tmp_path / "instance")
    assert run_instance(instance, until_idle=True).idle
    instance.jobs.queue(QueueName.INGEST).send("{}")
    with pytest.raises(StartedError):
        run_instance(instance, until_idle=True)
    instance.close()
