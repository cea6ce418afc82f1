"""Files as input: which files are a dataset, and which of their rows count."""

import os
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from sleeper.adjunct import AdjunctStore
from sleeper.adjunct.contents.writers import KeyedRows
from sleeper.adjunct.inputs.file_listing import FilePattern
from sleeper.adjunct.inputs.files import FileInput
from sleeper.datafiles.engine.settings import EngineSettings
from sleeper.errors import InvalidRequestError, NotFoundError, StateMovedOnError, UnavailableError

DAY_SECONDS = 86_400


def write(path: Path, content: str = "id,n\n1,10\n", age_seconds: float = DAY_SECONDS) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content)
    written = time.time() - age_seconds
    os.utime(path, (written, written))
    return path


def names(place: FilePattern, folder: Path) -> list[str]:
    listing = place.list()
    assert listing is not None
    return [str(Path(str(each)).relative_to(folder)) for each in listing.files]


def open_store(tmp_path: Path, input: str) -> AdjunctStore:
    return AdjunctStore.open(
        "prices", input, tmp_path / "stores", refresh_seconds=None, bootstrap_seconds=0
    )


def test_a_folder_has_its_files_of_known_formats(tmp_path: Path) -> None:
    for name in ("b.csv", "a/x.JSONL", "a.parquet", "_hidden/c.csv", ".c.csv", "README.md"):
        write(tmp_path / name)
    place = FilePattern(str(tmp_path))
    assert place.list() is None
    write(tmp_path / "a" / "_SUCCESS")
    assert place.list() is None
    write(tmp_path / "_SUCCESS")
    assert names(place, tmp_path) == ["a.parquet", "a/x.JSONL", "b.csv"]


def test_a_pattern_selects_files(tmp_path: Path) -> None:
    for name in ("p-1.csv", "p-2.csv", "q-1.csv", "a/p-3.csv", "a/b/p-4.csv", "_SUCCESS"):
        write(tmp_path / name)
    assert names(FilePattern(f"{tmp_path}/p-*.csv"), tmp_path) == ["p-1.csv", "p-2.csv"]
    assert names(FilePattern(f"{tmp_path}/?-1.csv"), tmp_path) == ["p-1.csv", "q-1.csv"]
    assert names(FilePattern(f"{tmp_path}/*/p-[0-9].csv"), tmp_path) == ["a/p-3.csv"]
    write(tmp_path / "x[1].csv")
    assert names(FilePattern(f"{tmp_path}/x[1].csv"), tmp_path) == ["x[1].csv"]


def test_the_digest_names_the_content(tmp_path: Path) -> None:
    place = FilePattern(str(tmp_path))
    found = set()

    def look() -> None:
        listing = place.list()
        assert listing is not None
        found.add(listing.digest)

    write(tmp_path / "a.csv")
    write(tmp_path / "_SUCCESS", "", age_seconds=500)
    look()
    look()
    assert len(found) == 1
    changes: tuple[Callable[[], object], ...] = (
        lambda: write(tmp_path / "a.csv", age_seconds=100),
        lambda: write(tmp_path / "a.csv", "id,n\n1,100\n", age_seconds=100),
        lambda: write(tmp_path / "b.csv"),
        lambda: (tmp_path / "b.csv").rename(tmp_path / "c.csv"),
        lambda: write(tmp_path / "_SUCCESS", "", age_seconds=50),
    )
    for number, change in enumerate(changes, 2):
        change()
        look()
        assert len(found) == number
    write(tmp_path / "notes.txt")
    look()
    assert len(found) == len(changes) + 1


def test_a_file_is_complete_when_it_rests(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place = FilePattern(str(write(tmp_path / "a.csv", age_seconds=0)))
    now = time.time()
    monkeypatch.setattr(time, "time", lambda: now + 1.5)
    assert place.list() is None
    monkeypatch.setattr(time, "time", lambda: now + 2.5)
    assert place.list() is not None
    # The clock of the machine may have been ahead when it was written.
    monkeypatch.setattr(time, "time", lambda: now - 10)
    assert place.list() is not None


@pytest.mark.parametrize("name", ["none", "none.csv", "none/*.csv"])
def test_a_place_that_does_not_exist_is_not_found(tmp_path: Path, name: str) -> None:
    with pytest.raises(NotFoundError, match=r"none.*does not exist"):
        FilePattern(f"{tmp_path}/{name}").list()


def test_a_file_of_an_unknown_format_is_refused(tmp_path: Path) -> None:
    write(tmp_path / "a.txt")
    with pytest.raises(InvalidRequestError, match=r"a.txt: unknown format .*\.parquet"):
        FilePattern(f"{tmp_path}/a.txt").list()


def test_of_equal_keys_the_last_row_counts(tmp_path: Path) -> None:
    for name, first in (("2.csv", 20), ("10.csv", 10)):
        lines = "".join(f"{key},{first + row}\n" for row in range(3) for key in (3, 1, 2))
        write(tmp_path / "in" / name, f"id,n\n{lines}")
    write(tmp_path / "in" / "_SUCCESS")
    with open_store(tmp_path, f"files:{tmp_path}/in") as store:
        assert dict(store.all()) == {key: {"n": 22} for key in (1, 2, 3)}


def test_rows_beyond_the_memory_are_sorted_on_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sleeper.adjunct.inputs.dataset._SORT_BYTES", 16 * 1024**2)
    count = 50_000
    places = [(each * 7919) % count for each in range(count)]
    table = pa.table(
        {"id": places * 2, "n": list(range(2 * count)), "text": ["x" * 60] * 2 * count}
    )
    (tmp_path / "in").mkdir()
    pq.write_table(table, tmp_path / "in" / "a.parquet")
    write(tmp_path / "in" / "_SUCCESS")
    with open_store(tmp_path, f"files:{tmp_path}/in") as store:
        found = list(store.all())
        assert [key for key, _ in found] == list(range(count))
        assert all(places[value["n"] - count] == key for key, value in found)
    assert list((tmp_path / "stores" / "prices" / "spill").iterdir()) == []


def test_the_key_may_have_several_fields(tmp_path: Path) -> None:
    path = write(tmp_path / "a.csv", "n,country,zip\n1,DE,01067\n2,AT,1010\n")
    with open_store(tmp_path, f"files:{path}?key=country, zip") as store:
        assert store.get(("DE", "01067")) == {"n": 1}
        assert list(store.range(("AT",), ("DE",))) == [(("AT", "1010"), {"n": 2})]


@pytest.mark.parametrize(
    ("input", "problem"),
    [
        ("files:", "unknown input 'files:'"),
        ("files:?key=a", "'files:\\?key=a' has an empty path or key"),
        ("files:x.csv?key=", "has an empty path or key"),
        ("files:x.csv?key=a,,b", "has an empty path or key"),
        ("stash:/x", "'stash:/x' names no table .*stash:DESTINATION#TABLE"),
        ("stash:#t", "names no table"),
        ("stash:/x#", "names no table"),
    ],
)
def test_an_incomplete_input_is_refused(tmp_path: Path, input: str, problem: str) -> None:
    with pytest.raises(InvalidRequestError, match=problem):
        open_store(tmp_path, input)


def test_a_value_that_does_not_fit_keeps_the_version_before(tmp_path: Path) -> None:
    path = write(tmp_path / "a.csv", "id,n\n1,10\n")
    with open_store(tmp_path, f"files:{path}") as store:
        before = store.status().version
        write(path, "id,n\n1,10\n,20\n")
        with pytest.raises(InvalidRequestError, match=r"a.csv, row 2: field 'id' .*null"):
            store.refresh()
        status = store.status()
        assert store.get(1) == {"n": 10}
        assert (status.version, status.lag) == (before, 1)
        assert "row 2" in str(status.problem)
        versions = [each.name for each in (tmp_path / "stores" / "prices").glob("v-*")]
        assert versions == ["v-1"]
        write(path, "id,n\n1,10\n2,20\n")
        assert store.refresh() == 2
        assert store.status().problem is None


def test_a_dataset_that_is_never_complete_is_unavailable(tmp_path: Path) -> None:
    write(tmp_path / "in" / "a.csv")
    with pytest.raises(UnavailableError, match="in has no complete dataset after 0 s"):
        open_store(tmp_path, f"files:{tmp_path}/in")
    # The version that was found before serves on while a folder is written anew.
    write(tmp_path / "in" / "_SUCCESS")
    open_store(tmp_path, f"files:{tmp_path}/in").close()
    (tmp_path / "in" / "_SUCCESS").unlink()
    write(tmp_path / "in" / "a.csv", "id,n\n2,20\n")
    with open_store(tmp_path, f"files:{tmp_path}/in") as store:
        assert store.refresh() == 0
        assert store.get(1) == {"n": 10}
        assert store.status().newest is None


def test_a_store_of_a_dataset_is_found_again(tmp_path: Path) -> None:
    path = write(tmp_path / "a.csv")
    with open_store(tmp_path, f"files:{path}") as store:
        version = store.status().version
    with open_store(tmp_path, f"files:{path}") as store:
        assert (store.status().version, store.refresh()) == (version, 0)
        assert not (tmp_path / "stores" / "prices" / "v-2").exists()


def test_an_unknown_option_is_not_part_of_the_path(tmp_path: Path) -> None:
    with pytest.raises(InvalidRequestError, match=r"unknown option 'keys' .expected key"):
        AdjunctStore.open("files", f"files:{tmp_path}/in.csv?keys=id", tmp_path)


def test_files_that_change_while_they_are_read_are_read_again(tmp_path: Path) -> None:
    path = write(tmp_path / "in" / "a.csv")
    write(tmp_path / "in" / "_SUCCESS")
    settings = EngineSettings(tmp_path / "spill")
    source = FileInput(f"{tmp_path}/in", [], partial(KeyedRows, "prices"), settings)
    dataset = source.newest()
    assert dataset is not None

    def read_changed() -> None:
        with source.open(dataset) as opened:
            write(path, "id,n\n1,11\n", age_seconds=10)
            list(opened.writes)

    with pytest.raises(StateMovedOnError, match="in changed while they were read"):
        read_changed()


def test_fields_and_emptiness_belong_to_a_version(tmp_path: Path) -> None:
    path = write(tmp_path / "a.csv")
    with open_store(tmp_path, f"files:{path}") as store:
        before = store.all()
        write(path, "code,n,city\nx,10,Rome\n", age_seconds=100)
        store.refresh()
        assert store.get("x") == {"n": 10, "city": "Rome"}
        assert list(before) == [(1, {"n": 10})]
        for content in ("code,n,city\n", ""):
            write(path, content, age_seconds=len(content) + 10)
            assert store.refresh() == 0
            assert (list(store.all()), store.get("x"), store.status().lag) == ([], None, 0)
