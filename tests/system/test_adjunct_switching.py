"""Adjunct stores whose versions replace each other: readers, killed processes, a full disk."""

import os
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from sleeper.adjunct import AdjunctStore
from sleeper.errors import UnavailableError
from tests.system.adjunct_processes import PAUSE_SECONDS, STAGES, STORE, check_version

pytestmark = pytest.mark.slow

VERSIONS = 6


def publish(folder: Path, version: int, rows: int | None = None) -> None:
    """Writes a dataset, as Spark does: the marker goes first and comes last."""
    folder.mkdir(exist_ok=True)
    (folder / "_SUCCESS").unlink(missing_ok=True)
    count = 1_000 + version if rows is None else rows
    table = pa.table({"id": range(count), "version": [version] * count})
    pq.write_table(table, folder / "part-0.parquet")
    (folder / "_SUCCESS").touch()


def fill(stores: Path, folder: Path) -> AdjunctStore:
    return AdjunctStore.open(STORE, f"files:{folder}", stores, refresh_seconds=None)


def start(*arguments: object) -> "subprocess.Popen[str]":
    command = [sys.executable, "-m", "tests.system.adjunct_processes", *map(str, arguments)]
    return subprocess.Popen(command, text=True, stdout=subprocess.PIPE)


def versions(stores: Path) -> list[str]:
    return sorted(each.name for each in (stores / STORE).glob("v-*"))


def test_readers_see_one_version_at_a_time(tmp_path: Path) -> None:
    stores, folder, end = tmp_path / "stores", tmp_path / "in", tmp_path / "end"
    publish(folder, 1)
    seen: list[int] = []
    failures: list[BaseException] = []
    is_over = threading.Event()
    with fill(stores, folder) as store:

        def hammer() -> None:
            try:
                while not is_over.wait(PAUSE_SECONDS):
                    seen.append(check_version(store))
                    assert store.get(5) is not None
            except BaseException as error:
                failures.append(error)

        threads = [threading.Thread(target=hammer) for _ in range(3)]
        readers = [start("read", stores, end) for _ in range(2)]
        for reader in readers:
            assert reader.stdout is not None
            assert reader.stdout.readline() == "reading\n"
        for thread in threads:
            thread.start()
        # An iterator reads its version to the end, however many versions follow.
        first = store.all()
        next(first)
        for version in range(2, VERSIONS + 1):
            publish(folder, version)
            store.refresh()
            before = len(seen)
            while len(seen) < before + 3 and not failures:
                is_over.wait(PAUSE_SECONDS)
        end.touch()
        counts = [int(reader.communicate(timeout=60)[0]) for reader in readers]
        is_over.set()
        for thread in threads:
            thread.join()
        assert failures == []
        assert set(seen) == set(range(1, VERSIONS + 1))
        assert min(counts) > 1
        assert [reader.returncode for reader in readers] == [0, 0]
        assert {value["version"] for _, value in first} == {1}
        del first
        assert versions(stores) == [f"v-{VERSIONS}"]


@pytest.mark.parametrize("stage", STAGES)
@pytest.mark.parametrize("is_first", [True, False], ids=["first load", "later load"])
def test_a_killed_load_is_never_seen(tmp_path: Path, stage: str, is_first: bool) -> None:
    stores, folder = tmp_path / "stores", tmp_path / "in"
    if not is_first:
        publish(folder, 1)
        fill(stores, folder).close()
    # More than a few of the loads' batches.
    publish(folder, 20_000)
    killed = start("fill", stores, folder, stage)
    killed.communicate(timeout=60)
    assert killed.returncode == -signal.SIGKILL
    is_switched = stage == "switched"
    with AdjunctStore.open(STORE, path=stores) as reader:
        if is_first and not is_switched:
            with pytest.raises(UnavailableError, match="no complete version"):
                reader.get(1)
        else:
            assert check_version(reader) == (20_000 if is_switched else 1)
    with fill(stores, folder) as store:
        # A version that was sealed is not built again.
        number = 1 if is_first else 2
        assert versions(stores) == [f"v-{number}"]
        assert check_version(store) == 20_000
        clean = fill(tmp_path / "clean", folder)
        assert list(store.all()) == list(clean.all())
        clean.close()


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A separate disk of 24 MiB."""
    disk = tmp_path / "disk"
    disk.mkdir()
    mounted = os.geteuid() == 0 and shutil.which("mount")
    command = ["mount", "-t", "tmpfs", "-o", "size=24m", "tmpfs", str(disk)]
    if not mounted or subprocess.run(command, capture_output=True, check=False).returncode:
        pytest.skip("a small disk can only be mounted by root, where mounting is allowed")
    yield disk
    subprocess.run(["umount", "-l", str(disk)], check=True)


def test_a_full_disk_keeps_the_version_before(small_disk: Path, tmp_path: Path) -> None:
    folder = tmp_path / "in"
    publish(folder, 1)
    with fill(small_disk, folder) as store:
        publish(folder, 2, rows=1_500_000)
        with pytest.raises(UnavailableError, match=r"(?i)no space|disk is full"):
            store.refresh()
        assert check_version(store) == 1
        assert versions(small_disk) == ["v-1"]
        status = store.status()
        assert (status.lag, status.is_serving) == (1, True)
        assert status.problem is not None
        publish(folder, 3)
        store.refresh()
        assert check_version(store) == 3
        assert store.status().problem is None
