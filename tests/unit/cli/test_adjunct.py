"""`sleeper adjunct`: what it prints, its exit statuses, and each error."""

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from time import monotonic, sleep
from typing import Any

import pytest

import sleeper as api
from sleeper.adjunct import AdjunctStore
from sleeper.errors import UnavailableError
from tests.unit.cli.conftest import CommandResult, Sleeper
from tests.unit.cli.test_export_queue import error_of

FILL = ("adjunct", "run", "--until-current", "--store", "cities", "--input", "table:cities")


@pytest.fixture
def here(tmp_path: Path, cities: Sleeper) -> Path:
    """The folder of the stores. The table has a sort key, and keys that need quotes."""
    (tmp_path / "a.csv").write_text('city,year,people\nParis,2020,5\nRome,2020,3\n"a,b:c",1,1\n')
    assert cities("ingest", "cities", tmp_path / "a.csv").status == 0
    return tmp_path / "here" / "adjunct"


def filled(sleeper: Sleeper, *more: object) -> None:
    result = sleeper(*FILL, *more)
    assert (result.status, result.stdout) == (0, ""), result


def status_of(sleeper: Sleeper, name: str = "cities") -> dict[str, Any]:
    (row,) = sleeper("adjunct", "status", name, "--output", "json").rows
    return row


def wait_until(condition: Callable[[], bool]) -> None:
    deadline = monotonic() + 30
    while not condition():
        assert monotonic() < deadline
        sleep(0.01)


@contextmanager
def filling(folder: Path, **more: Any) -> Iterator[AdjunctStore]:
    with (
        api.open_instance(folder.parent) as instance,
        AdjunctStore.open(
            *("cities", "table:cities", folder), instance=instance, refresh_seconds=0.01, **more
        ) as store,
    ):
        yield store


def test_a_store_is_filled_listed_and_read(sleeper: Sleeper, here: Path) -> None:
    assert sleeper("adjunct", "list").stdout == f"0 stores in {here}\n"
    result = sleeper(*FILL)
    assert (result.status, result.stdout) == (0, "")
    assert result.stderr.startswith("store cities: loaded 3 keys at transaction ")
    found = sleeper("adjunct", "get", "cities", "Rome", '"a,b:c"')
    assert found.rows == [
        {"key": "Rome", "value": {"year": 2020, "people": 3}},
        {"key": "a,b:c", "value": {"year": 1, "people": 1}},
    ]
    (row,) = sleeper("adjunct", "list", "--output", "json").rows
    assert (row["name"], row["input"], row["filled_by"]) == ("cities", "table:cities", None)
    assert row["state"] == "serving, not filled"
    assert row["bytes"] > 0
    listed = sleeper("adjunct", "list").stdout
    assert listed.startswith(f"1 store in {here}\n")
    assert "table:cities" in listed


def test_keys_are_printed_by_range_and_all_at_once(sleeper: Sleeper, here: Path) -> None:
    filled(sleeper)

    def keys(*arguments: str) -> list[str]:
        result = sleeper("adjunct", "get", "cities", *arguments)
        assert result.status == 0, result
        return [row["key"] for row in result.rows]

    assert keys("--all") == ["Paris", "Rome", "a,b:c"]
    assert keys("--all", "--limit", "1") == ["Paris"]
    assert keys("--range", "Q:") == ["Rome", "a,b:c"]
    assert keys("--range", ":Rome") == ["Paris"]


def test_a_key_of_several_fields_is_a_list(sleeper: Sleeper, here: Path, tmp_path: Path) -> None:
    schema = tmp_path / "visits.json"
    fields = [{"name": "site", "type": "StringType"}, {"name": "day", "type": "IntType"}]
    values = [{"name": "raw", "type": "ByteArrayType"}, {"name": "at", "type": "TimestampType"}]
    schema.write_text(json.dumps({"rowKeyFields": fields, "valueFields": values}))
    assert sleeper("table", "create", "visits", "--schema", schema).status == 0
    rows = tmp_path / "visits.jsonl"
    rows.write_text('{"site":"a","day":7,"raw":"AAE=","at":"2026-01-31T00:00:00Z"}\n')
    assert sleeper("ingest", "visits", rows).status == 0
    made = sleeper("adjunct", "run", "--until-current", "--store", "v", "--input", "table:visits")
    assert made.status == 0, made
    expected = {
        "key": ["a", 7],
        "value": {
            "raw": "AAE=",
            "at": sleeper("query", "visits", "--format", "json").rows[0]["at"],
        },
    }
    assert sleeper("adjunct", "get", "v", "a,7").rows == [expected]
    assert sleeper("adjunct", "get", "v", "--range", "a:b").rows == [expected]
    assert "expected one per row key field: site,day" in error_of(
        sleeper("adjunct", "get", "v", "a")
    )


def test_json_stands_as_it_was_written(sleeper: Sleeper, here: Path, tmp_path: Path) -> None:
    schema = tmp_path / "docs.json"
    fields = [{"name": "id", "type": "LongType"}]
    values = [{"name": "doc", "type": "JSONType", "nullable": True}]
    schema.write_text(json.dumps({"rowKeyFields": fields, "valueFields": values}))
    assert sleeper("table", "create", "docs", "--schema", schema).status == 0
    rows = tmp_path / "docs.jsonl"
    rows.write_text('{"id":1,"doc":{"a":1.10}}\n{"id":2,"doc":null}\n{"id":3}\n')
    assert sleeper("ingest", "docs", rows).status == 0
    made = sleeper("adjunct", "run", "--until-current", "--store", "d", "--input", "table:docs")
    assert made.status == 0, made
    expected = (
        '{"key":1,"value":{"doc":{"a":1.10}}}\n'
        '{"key":2,"value":{"doc":null}}\n'
        '{"key":3,"value":{}}\n'
    )
    assert sleeper("adjunct", "get", "d", "--all").stdout == expected
    assert sleeper("adjunct", "get", "d", "1", "2", "3").stdout == expected


def test_a_missing_key_is_an_error_after_the_others(sleeper: Sleeper, here: Path) -> None:
    filled(sleeper)
    result = sleeper("adjunct", "get", "cities", "Oslo", "Rome")
    assert result.status == 1
    assert [row["key"] for row in result.rows] == ["Rome"]
    assert result.stderr == "error: store 'cities' has no key Oslo\n"


def test_the_status_without_a_filling_process_asks_the_input(
    sleeper: Sleeper, here: Path, tmp_path: Path
) -> None:
    filled(sleeper)
    before = status_of(sleeper)
    assert (before["filled_by"], before["lag"], before["bootstrapped"]) == (None, 0, True)
    number = int(before["offset"]["number"])
    assert sleeper("ingest", "cities", tmp_path / "a.csv").status == 0
    after = status_of(sleeper)
    assert (after["lag"], after["newest"]) == (1, str(number + 1))
    text = sleeper("adjunct", "status", "cities").stdout
    assert text.startswith("store cities of table:cities: serving, not filled\n")
    assert "  lag           1 behind, the newest is " in text
    assert sleeper("table", "delete", "cities", "--yes").status == 0
    lost = sleeper("adjunct", "status", "cities", "--output", "json")
    assert (lost.status, lost.rows[0]["lag"]) == (0, None)
    assert lost.stderr.startswith("the lag is unknown: ")


def test_the_status_of_a_filled_store_is_that_of_its_process(sleeper: Sleeper, here: Path) -> None:
    with filling(here):
        found = status_of(sleeper)
        assert found["filled_by"].startswith("process ")
        assert (found["state"], found["problem"]) == ("serving", None)
        wait_until(lambda: status_of(sleeper)["lag"] == 0)
        assert "process" in sleeper("adjunct", "list").stdout
        again = error_of(sleeper(*FILL))
        assert "is in use by process" in again


def test_the_problem_of_a_filling_process_is_shown(
    sleeper: Sleeper, here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with filling(here):

        def fail(*_: object) -> None:
            raise UnavailableError("the log does not respond")

        with monkeypatch.context() as patch:
            patch.setattr("sleeper.adjunct.inputs.table.TableInput.inspect", fail)
            wait_until(lambda: status_of(sleeper)["problem"] == "the log does not respond")
        assert status_of(sleeper)["state"] == "serving, not updated"
        assert sleeper("adjunct", "get", "cities", "Rome").status == 0


def test_a_rebuild_is_done_by_the_filling_process(sleeper: Sleeper, here: Path) -> None:
    with filling(here) as store:
        before = (here / "cities" / "current").read_text()
        result = sleeper("adjunct", "rebuild", "cities")
        assert (result.status, result.stderr) == (0, "rebuilt store cities\n")
        assert (here / "cities" / "current").read_text() != before
        assert store.get("Rome") == {"year": 2020, "people": 3}
        assert not list((here / "cities").glob("request*"))


def test_a_rebuild_that_is_not_waited_for_is_done_later(sleeper: Sleeper, here: Path) -> None:
    with filling(here) as store:
        before = store.status()
        result = sleeper("adjunct", "rebuild", "cities", "--no-wait")
        assert result.stderr in (
            "asked for a rebuild of store cities\n",
            "rebuilt store cities\n",
        )
        wait_until(lambda: store.status().updated_ms > before.updated_ms)
        wait_until(lambda: not list((here / "cities").glob("request*")))


def test_a_rebuild_without_a_filling_process_is_done_now(sleeper: Sleeper, here: Path) -> None:
    filled(sleeper)
    (data,) = (here / "cities").glob("v-*/data")
    for each in data.iterdir():
        each.write_bytes(b"damaged")
    broken = status_of(sleeper)
    assert not broken["is_serving"]
    assert "store at" in broken["problem"]
    assert sleeper("adjunct", "get", "cities", "Rome").status == 1
    result = sleeper("adjunct", "rebuild", "cities")
    assert (result.status, result.stderr) == (0, "rebuilt store cities\n")
    assert sleeper("adjunct", "get", "cities", "Rome").status == 0


def test_a_damaged_store_that_lost_its_input_needs_it(sleeper: Sleeper, here: Path) -> None:
    filled(sleeper)
    (here / "cities" / "status.json").write_text("{")
    (here / "cities" / "current").write_text("nothing")
    assert "expected --input" in error_of(sleeper("adjunct", "rebuild", "cities"))
    assert sleeper("adjunct", "rebuild", "cities", "--input", "table:cities").status == 0
    assert sleeper("adjunct", "get", "cities", "Rome").status == 0


def test_changes_of_a_table_cannot_be_sealed(sleeper: Sleeper, here: Path) -> None:
    filled(sleeper)
    assert "no process fills it" in error_of(sleeper("adjunct", "seal", "cities"))
    with filling(here):
        assert "which have no end" in error_of(sleeper("adjunct", "seal", "cities"))
        assert not list((here / "cities").glob("re*-*"))


def test_a_store_in_memory_is_shown(sleeper: Sleeper, here: Path) -> None:
    with filling(here, type="memory"):
        wait_until(lambda: status_of(sleeper)["is_serving"])
        assert status_of(sleeper)["type"] == "memory"
    after = status_of(sleeper)
    assert (after["is_serving"], after["state"]) == (False, "no complete version")
    assert "in memory" in error_of(sleeper("adjunct", "rebuild", "cities"))


def test_stores_of_another_folder(
    sleeper: Sleeper, here: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = tmp_path / "other"
    filled(sleeper, "--path", other)
    assert sleeper("adjunct", "get", "cities", "Rome", "--path", other).status == 0
    assert "there is no store 'cities'" in error_of(sleeper("adjunct", "status", "cities"))
    monkeypatch.setenv("SLEEPER_ADJUNCT_PATH", str(other))
    assert sleeper("adjunct", "get", "cities", "Rome").status == 0
    monkeypatch.delenv("SLEEPER_ADJUNCT_PATH")
    nowhere = sleeper("--instance", "aws:x", "adjunct", "list")
    assert "no folder of stores" in error_of(nowhere)
    assert "there is no folder" in error_of(sleeper("adjunct", "list", "--path", tmp_path / "no"))


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (("--store", "a", "--input", "table:nothing"), "nothing"),
        (("--store", "a", "--input", "what:cities"), "unknown input 'what:cities'"),
        (("--store", "a/b", "--input", "table:cities"), "store name 'a/b'"),
        (("--store", "a", "--input", "table:cities", "--type", "x"), "store type 'x'"),
        (("--store", "a", "--input", "table:cities", "--partition", "4/4"), "partition 4/4"),
        (("--store", "a", "--input", "table:cities", "--max-age", "x"), "maximum age 'x'"),
        (("--store", "a", "--input", "kafka://me:pass@h:1/t"), "expected a reference"),
        (("--store", "a", "--input", "kafka://h:1/t?password=pass"), "not a reference"),
    ],
)
def test_wrong_stores(
    sleeper: Sleeper, here: Path, arguments: tuple[str, ...], problem: str
) -> None:
    error = error_of(sleeper("adjunct", "run", "--until-current", *arguments))
    assert problem in error
    assert "pass@" not in error


@pytest.mark.parametrize(
    "arguments",
    [
        ("adjunct", "get", "cities"),
        ("adjunct", "get", "cities", "Rome", "--all"),
        ("adjunct", "run", "--store", "a"),
        ("adjunct", "run", "--input", "table:a"),
    ],
)
def test_wrong_usage(sleeper: Sleeper, arguments: tuple[str, ...]) -> None:
    assert sleeper(*arguments).status == 2


def test_a_run_ends_when_it_is_interrupted(
    sleeper: Sleeper, here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The listener is called again and again, so an interrupt in it is one of the command."""
    seen = threading.Event()

    def interrupt(seconds: float) -> None:
        del seconds
        if (here / "cities" / "current").exists():
            seen.set()
            raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("sleeper.adjunct.run_stores.time.sleep", interrupt)
        result: CommandResult = sleeper(*(each for each in FILL if each != "--until-current"))
    assert seen.is_set()
    assert (result.status, result.stderr.splitlines()[-1]) == (0, "stopped")
    assert sleeper("adjunct", "get", "cities", "Rome").status == 0


def test_names_are_completed(sleeper: Sleeper, here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    filled(sleeper)
    monkeypatch.setenv("_SLEEPER_COMPLETE", "complete_bash")
    monkeypatch.setenv("COMP_WORDS", "sleeper adjunct get cit")
    monkeypatch.setenv("COMP_CWORD", "3")
    assert "cities" in sleeper().stdout


def test_a_file_names_the_stores(sleeper: Sleeper, here: Path, tmp_path: Path) -> None:
    config = tmp_path / "stores.properties"
    config.write_text(
        "stores.cities.adstore.input=table:cities\n"
        "stores.part.adstore.input=table:cities\nstores.part.adstore.partition=0/1\n"
    )
    assert sleeper("adjunct", "run", "--until-current", "--config", config).status == 0
    listed = sleeper("adjunct", "list", "--output", "json").rows
    assert [(each["name"], each["input"]) for each in listed] == [
        ("cities", "table:cities"),
        ("part", "table:cities"),
    ]
    config.write_text("stores.cities.adstore.inputs=table:cities\n")
    assert "did you mean input" in error_of(sleeper("adjunct", "run", "--config", config))
    config.write_text("job.name=x\n")
    assert "has no stores" in error_of(sleeper("adjunct", "run", "--config", config))
    for option in (("--store", "a"), ("--type", "rocksdb"), ("--no-bootstrap",)):
        refused = sleeper("adjunct", "run", "--config", config, *option)
        assert f"{option[0]} does not go with --config" in refused.stderr


def test_a_store_that_lacks_nothing_is_as_of_now(
    sleeper: Sleeper, here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The saved state is touched rarely, but the age of the status must not grow."""
    monkeypatch.setattr("sleeper.adjunct.feeds.updater.REPORT_SECONDS", 0.01)
    with filling(here) as store:
        before = store.status().updated_ms
        wait_until(lambda: store.status().updated_ms > before)
        wait_until(lambda: status_of(sleeper)["age_seconds"] < 5)
        first = status_of(sleeper)["updated_ms"]
        wait_until(lambda: status_of(sleeper)["updated_ms"] > first)
