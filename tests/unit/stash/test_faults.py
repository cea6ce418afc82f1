"""Destinations that refuse, are missing, throttle, lose connections or are full."""

import os
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from sleeper.errors import SleeperError, UnavailableError
from sleeper.retries import RETRY_VARIABLE
from sleeper.stash import Stash
from sleeper.storage.bucket import open_bucket
from tests.servers.faulty_s3 import DROP, FaultyS3, faulty_s3
from tests.unit.stash.conftest import SCHEMA, Stasher
from tests.unit.stash.test_run import rows

DESTINATION = "s3://bucket/stash"


@pytest.fixture
def s3(monkeypatch: pytest.MonkeyPatch) -> Iterator[FaultyS3]:
    with faulty_s3() as server:
        environment = {
            "AWS_ENDPOINT_URL": server.endpoint,
            "AWS_ACCESS_KEY_ID": "key",
            "AWS_SECRET_ACCESS_KEY": "secret",
            "AWS_REGION": "us-east-1",
            RETRY_VARIABLE: "2",
        }
        for name, value in environment.items():
            monkeypatch.setenv(name, value)
        open_bucket.cache_clear()
        yield server
    open_bucket.cache_clear()


@pytest.fixture
def stasher(stasher: Stasher) -> Stasher:
    stasher.instance.create_table("t", SCHEMA, split_points=[2]).ingest(rows(1, 2, 3))
    return stasher


def keys(destination: str) -> list[str]:
    with Stash.open(destination).scan("t") as found:
        return [document["~id"] for document in found]


def test_throttling_and_lost_connections_are_outlasted(stasher: Stasher, s3: FaultyS3) -> None:
    stasher.destination = DESTINATION
    seen: Counter[tuple[str, str]] = Counter()

    def fail_twice(method: str, path: str) -> tuple[int, str] | None:
        if "/" not in path:
            # A listing is not repeated after a lost connection.
            return None
        seen[method, path] += 1
        return {1: (503, "SlowDown"), 2: DROP}.get(seen[method, path])

    s3.find_fault = fail_twice
    result = stasher.run()
    assert s3.objects["bucket/stash/_LATEST"].decode() == result.root
    seen.clear()
    assert keys(DESTINATION) == ["1", "2", "3"]


@pytest.mark.parametrize("name", [".json.gz", "_TABLES", "_SUCCESS"])
def test_a_bucket_that_refuses_a_write_never_has_a_complete_stash(
    stasher: Stasher, s3: FaultyS3, name: str
) -> None:
    stasher.destination = DESTINATION

    def refuse(method: str, path: str) -> tuple[int, str] | None:
        return (403, "AccessDenied") if method == "PUT" and path.endswith(name) else None

    s3.find_fault = refuse
    with pytest.raises(UnavailableError) as error:
        stasher.run()
    assert str(error.value).startswith("cannot write s3://bucket/stash/20")
    assert str(error.value).endswith(f"{name}: 403 Forbidden: AccessDenied: a fault")
    assert not any(path.endswith(("_SUCCESS", "_LATEST")) for path in s3.objects)
    s3.find_fault = FaultyS3.find_fault
    stasher.run()
    assert keys(DESTINATION) == ["1", "2", "3"]


def test_a_missing_bucket_is_named(stasher: Stasher, s3: FaultyS3) -> None:
    stasher.destination = DESTINATION
    s3.find_fault = lambda _method, _path: (404, "NoSuchBucket")
    for call in (stasher.run, Stash.open(DESTINATION).tables):
        with pytest.raises(UnavailableError, match=r"s3://bucket/stash/.*NoSuchBucket"):
            call()


@pytest.mark.parametrize("error", [OSError(28, "No space left on device"), PermissionError(13, "")])
def test_a_full_or_read_only_folder_never_has_a_complete_stash(
    stasher: Stasher, monkeypatch: pytest.MonkeyPatch, error: OSError
) -> None:
    replace = os.replace

    def refuse(old: Any, new: Any) -> None:
        if str(new).startswith(stasher.destination):
            raise error
        replace(old, new)

    with monkeypatch.context() as patched:
        patched.setattr(os, "replace", refuse)
        with pytest.raises(UnavailableError, match=r"cannot write .*/stash/20.*_TABLES: "):
            stasher.run()
    assert [path for path in Path(stasher.destination).rglob("*") if path.is_file()] == []
    stasher.run()
    assert keys(stasher.destination) == ["1", "2", "3"]


def test_a_folder_that_cannot_be_made_is_named(stasher: Stasher) -> None:
    stasher.destination = "/proc/stash"
    with pytest.raises(SleeperError, match="/proc/stash"):
        stasher.run()
