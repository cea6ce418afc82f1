import os
import sqlite3
import subprocess
import sys
import time
from pathlib import Path

import pytest

from sleeper.errors import DataError, InvalidRequestError, NotFoundError, UnavailableError
from sleeper.local.folder import (
    TablePropertyFiles,
    create_instance_folder,
    open_instance_folder,
)
from sleeper.local.table_index import LocalTableIndex
from sleeper.properties.instance import ID, MERGE_FILES_MAX
from sleeper.properties.table import COLLECTION_DELAY_MINUTES, NAME
from sleeper.properties.values import table_properties
from sleeper.tables import TableId, TableRef

SCHEMA = '{"rowKeyFields":[{"name":"id","type":"StringType"}]}'
TABLE = TableId("0000000a")


def test_a_created_instance_opens(tmp_path: Path) -> None:
    instance = create_instance_folder(tmp_path / "a" / "b", "me", {"sleeper.merge.files.max": "9"})
    instance.close()
    opened_instance = open_instance_folder(tmp_path / "a" / "b")
    assert opened_instance.properties().get(ID) == "me"
    assert opened_instance.properties().get(MERGE_FILES_MAX) == 9
    opened_instance.close()


def test_a_folder_with_other_files_is_refused(tmp_path: Path) -> None:
    (tmp_path / "letters.txt").write_text("dear")
    with pytest.raises(InvalidRequestError, match=r"not empty and not an instance: it has letters"):
        create_instance_folder(tmp_path, "me")
    assert os.listdir(tmp_path) == ["letters.txt"]
    with pytest.raises(InvalidRequestError, match="is a file"):
        create_instance_folder(tmp_path / "letters.txt", "me")


def test_an_instance_cannot_be_created_twice(tmp_path: Path) -> None:
    create_instance_folder(tmp_path, "me").close()
    with pytest.raises(InvalidRequestError, match="is already an instance"):
        create_instance_folder(tmp_path, "me")


@pytest.mark.parametrize("instance_id", ["", "a b", "-a", "x" * 21])
def test_a_wrong_id_leaves_nothing_behind(tmp_path: Path, instance_id: str) -> None:
    with pytest.raises(InvalidRequestError, match=r"sleeper\.id"):
        create_instance_folder(tmp_path / "new", instance_id)
    assert not (tmp_path / "new").exists()


def test_a_failed_creation_leaves_no_instance_and_can_be_repeated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def die(*_: object) -> None:
        (tmp_path / "instance.properties.0123abcd.tmp").write_text("half")
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("sleeper.local.folder.write_whole", die)
        with pytest.raises(KeyboardInterrupt):
            create_instance_folder(tmp_path, "me")
    assert (tmp_path / "instance.db").exists()
    with pytest.raises(NotFoundError, match="is not an instance"):
        open_instance_folder(tmp_path)
    create_instance_folder(tmp_path, "me").close()
    open_instance_folder(tmp_path).close()


def test_a_database_of_another_version_is_refused(tmp_path: Path) -> None:
    create_instance_folder(tmp_path, "me").close()
    connection = sqlite3.connect(tmp_path / "instance.db")
    connection.execute("PRAGMA user_version = 99")
    connection.close()
    with pytest.raises(DataError, match="format version 99"):
        open_instance_folder(tmp_path)


def test_a_file_that_is_not_a_database_is_a_data_error(tmp_path: Path) -> None:
    create_instance_folder(tmp_path, "me").close()
    (tmp_path / "instance.db").write_bytes(b"not a database" * 1000)
    with pytest.raises(DataError, match=r"instance\.db"):
        open_instance_folder(tmp_path)


def test_table_properties_are_kept_as_the_format_page_says(tmp_path: Path) -> None:
    instance = create_instance_folder(tmp_path, "me")
    properties = table_properties(
        {"sleeper.table.name": "t", "sleeper.table.schema": SCHEMA}, instance.properties()
    )
    TablePropertyFiles(instance).write(TABLE, properties)
    text = (tmp_path / "tables" / "table-0000000a.properties").read_text()
    assert 'sleeper.table.schema={"rowKeyFields"\\:[{"name"\\:"id"' in text
    changed = TablePropertyFiles(instance).change(TABLE, {"sleeper.table.gc.delay.minutes": "4"})
    assert changed.get(COLLECTION_DELAY_MINUTES) == 4
    assert TablePropertyFiles(instance).read(TABLE).get(NAME) == "t"
    instance.close()


def test_a_refused_change_leaves_the_file_as_it_was(tmp_path: Path) -> None:
    instance = create_instance_folder(tmp_path, "me")
    previous = (tmp_path / "instance.properties").read_text()
    with pytest.raises(InvalidRequestError, match="cannot be 'many'"):
        instance.set_properties({"sleeper.merge.files.max": "many"})
    with pytest.raises(InvalidRequestError, match=r"sleeper\.id cannot change"):
        instance.set_properties({"sleeper.id": "you"})
    assert (tmp_path / "instance.properties").read_text() == previous
    assert instance.set_properties({"sleeper.merge.files.max": "7"}).get(MERGE_FILES_MAX) == 7
    instance.close()


def test_a_write_that_fails_keeps_the_old_text(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    instance = create_instance_folder(tmp_path, "me")

    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        with pytest.raises(UnavailableError, match="No space left"):
            instance.set_properties({"sleeper.merge.files.max": "7"})
    assert instance.properties().get(MERGE_FILES_MAX) == 64
    assert not list(tmp_path.glob("*.tmp"))
    instance.close()


def test_old_files_of_a_failed_table_creation_are_found(tmp_path: Path) -> None:
    instance = create_instance_folder(tmp_path, "me")
    listing, left = TableId("0000000a"), TableId("0000000b")
    for table_id in (listing, left):
        instance.make_table_folder(table_id)
        TablePropertyFiles(instance).write(table_id, table_properties({}, instance.properties()))
    LocalTableIndex(instance.database).create(TableRef(listing, "t"))
    now_ms = int(time.time() * 1000)
    assert instance.unlisted_table_ids(older_than_ms=now_ms - 60_000) == ()
    assert instance.unlisted_table_ids(older_than_ms=now_ms + 60_000) == (left,)
    instance.remove_table_files(left)
    instance.remove_table_files(left)
    assert instance.unlisted_table_ids(older_than_ms=now_ms + 60_000) == ()
    assert instance.state_path(listing).parent.is_dir()
    instance.close()


FORKED = """
import os, sys
from pathlib import Path
from sleeper.errors import SleeperError
from sleeper.local.folder import open_instance_folder
from sleeper.local.table_index import LocalTableIndex
instance = open_instance_folder(Path(sys.argv[1]))
LocalTableIndex(instance.database).list()
if sys.argv[2] == "closed":
    instance.close()
child = os.fork()
if child == 0:
    try:
        open_instance_folder(Path(sys.argv[1]))
    except SleeperError as error:
        print(error, flush=True)
        os._exit(3)
    os._exit(0)
sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


@pytest.mark.parametrize(("parent", "status"), [("open", 3), ("closed", 0)])
def test_a_database_that_was_open_at_a_fork_is_refused(
    tmp_path: Path, parent: str, status: int
) -> None:
    create_instance_folder(tmp_path, "me").close()
    run = subprocess.run(
        [sys.executable, "-c", FORKED, str(tmp_path), parent],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert run.returncode == status, run.stderr
    assert ("start workers with spawn" in run.stdout) == (status == 3)
