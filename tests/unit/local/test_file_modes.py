"""Tests of the access modes of a local instance's files."""

import json
import os
import stat
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from sleeper.admin.tables import create_table
from sleeper.errors import DataError
from sleeper.local.folder import read_whole
from sleeper.local.instance import create_local_instance, open_local_instance

SCHEMA = json.dumps({"rowKeyFields": [{"name": "k", "type": "LongType"}]})


@contextmanager
def umask(value: int) -> Iterator[None]:
    previous = os.umask(value)
    try:
        yield
    finally:
        os.umask(previous)


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


@pytest.mark.parametrize(("mask", "expected"), [(0o022, 0o700), (0o077, 0o700), (0o002, 0o770)])
def test_a_new_folder_s_mode_follows_the_umask_for_the_group(
    tmp_path: Path, mask: int, expected: int
) -> None:
    with umask(mask):
        create_local_instance(tmp_path / "a" / "instance", "test")
    assert mode(tmp_path / "a" / "instance") == expected
    assert mode(tmp_path / "a") == 0o777 & ~mask


def test_an_existing_folder_keeps_its_mode(tmp_path: Path) -> None:
    folder = tmp_path / "instance"
    folder.mkdir()
    folder.chmod(0o2775)
    create_local_instance(folder, "test")
    assert mode(folder) == 0o2775


def test_the_group_can_write_all_of_a_shared_instance(tmp_path: Path) -> None:
    with umask(0o002):
        create_local_instance(tmp_path / "instance", "test")
        with closing(open_local_instance(tmp_path / "instance")) as instance:
            create_table(instance, "t", SCHEMA)
            with instance.table("t").state.reading():
                spill = instance.storage.spill_folder()
                assert mode(spill) == 0o700
                result = {p.name: mode(p) for p in (tmp_path / "instance").rglob("*") if p != spill}
    assert {"instance.db", "state.db", "state.db.lock", "state.db-wal"} <= result.keys()
    assert {name: oct(m) for name, m in result.items() if m & 0o060 != 0o060} == {}


def test_a_property_file_that_is_no_text_is_a_data_error(tmp_path: Path) -> None:
    (tmp_path / "instance.properties").write_bytes(b"sleeper.id=\xff\n")
    with pytest.raises(DataError, match=r"instance\.properties is not UTF-8 text: .*position 11"):
        read_whole(tmp_path / "instance.properties")
