"""`sleeper export-queue`: what it prints, its exit statuses, and each error."""

from pathlib import Path
from typing import Any

import pytest

import sleeper as api
from tests.unit.cli.conftest import CommandResult, Sleeper

CREATE = ("export-queue", "create", "out", "--table", "cities", "--on", "ingest", "--key", "city")
NULL = ("--value", "people", "--exporter", "null:")


@pytest.fixture
def here(tmp_path: Path, cities: Sleeper) -> Path:
    (tmp_path / "a.csv").write_text("city,year,people\nParis,2020,5\nRome,2020,3\n")
    made = cities(
        *("table", "create", "loaded", "--schema", tmp_path / "schema.json"),
        *("--set", "sleeper.table.type=snapshot"),
    )
    assert made.status == 0
    return tmp_path


def error_of(result: CommandResult) -> str:
    """The error of a failed command, which is one line."""
    assert result.status == 1, result
    assert result.stdout == ""
    (line,) = result.stderr.splitlines()
    return line.removeprefix("error: ")


def status_of(sleeper: Sleeper, name: str = "out") -> dict[str, Any]:
    (row,) = sleeper("export-queue", "status", name, "--output", "json").rows
    return row


def test_a_queue_is_created_filled_drained_and_deleted(sleeper: Sleeper, here: Path) -> None:
    made = sleeper(*CREATE, *NULL, "--buckets", "7")
    assert (made.status, made.stdout) == (0, "")
    assert made.stderr == "created export queue out: cities on ingest -> null:\n"
    assert sleeper("ingest", "cities", here / "a.csv").status == 0
    before = status_of(sleeper)
    assert (before["report"], before["name"], before["table"]) == ("export-queue", "out", "cities")
    assert (before["on"], before["exporter"], before["buckets"]) == ("ingest", "null:", 7)
    assert (before["state"], before["lag"], before["pending"]) == ("active", 1, 0)
    refused = error_of(sleeper("export-queue", "delete", "out"))
    assert refused.startswith("export queue 'out' is not empty: 2 exports pending")
    drained = sleeper("export-queue", "drain", "out")
    assert drained.status == 0
    assert drained.stderr.startswith("2 exports of queue out, ")
    after = status_of(sleeper)
    assert (after["lag"], after["pending"], after["dead"], after["failing"]) == (0, 0, 0, [])
    text = sleeper("export-queue", "status", "out").stdout
    assert text.startswith("export queue out of table cities: active\n")
    assert "  lag       0 transactions not taken up\n  pending   0 exports, 0 B\n" in text
    listed = sleeper("export-queue", "list").stdout
    assert listed.startswith("1 export queue\n")
    assert "cities" in listed
    deleted = sleeper("export-queue", "delete", "out", "--yes")
    assert (deleted.status, deleted.stderr) == (0, "deleted export queue out\n")
    assert sleeper("export-queue", "list").stdout == "0 export queues\n"


def test_nothing_of_a_snapshot_table_is_left_after_a_drain(sleeper: Sleeper, here: Path) -> None:
    made = sleeper(
        *("export-queue", "create", "out", "--table", "loaded", "--on", "snapshot"),
        *("--key", "city", *NULL),
    )
    assert made.status == 0
    for _ in range(2):
        assert sleeper("ingest", "loaded", here / "a.csv").status == 0
        drained = sleeper("export-queue", "drain", "out")
        assert (drained.status, status_of(sleeper)["lag"]) == (0, 0), drained.stderr


def test_pending_exports_are_shown(sleeper: Sleeper, here: Path) -> None:
    assert sleeper(*CREATE, *NULL).status == 0
    assert sleeper("ingest", "cities", here / "a.csv").status == 0
    assert sleeper("export-queue", "pause", "out").stderr == "paused export queue out\n"
    drained = sleeper("export-queue", "drain", "out")
    assert drained.status == 1
    assert (
        "error: export queue 'out' is not empty: 2 exports pending: it is paused" in drained.stderr
    )
    status = status_of(sleeper)
    assert (status["state"], status["lag"], status["pending"]) == ("paused", 0, 2)
    rows = sleeper("export-queue", "peek", "out", "--format", "json").rows
    assert sorted(row["city"] for row in rows) == ["Paris", "Rome"]
    assert [*rows[0]] == ["bucket", "sequence", "gone", "city", "people"]
    assert {row["gone"] for row in rows} == {False}
    one = sleeper("export-queue", "peek", "out", "--limit", "1", "--bucket", rows[0]["bucket"])
    assert one.stderr == "1 pending export\n"
    assert "city" in one.stdout.splitlines()[0]
    assert sleeper("export-queue", "peek", "out", "--dead").stderr == "0 dead exports\n"
    assert "pending   2 exports, " in sleeper("export-queue", "status", "out").stdout
    refused = error_of(sleeper("export-queue", "delete", "out"))
    assert refused.startswith("export queue 'out' is not empty: 2 exports pending (expected none")
    assert sleeper("export-queue", "resume", "out").stderr == "resumed export queue out\n"
    assert sleeper("export-queue", "redrive", "out").stderr == (
        "0 dead exports of queue out pending again\n"
    )
    assert sleeper("export-queue", "delete", "out", "--discard").status == 0


def test_splits_are_printed_one_per_line(sleeper: Sleeper, here: Path) -> None:
    assert sleeper(*CREATE, *NULL, "--buckets", "1009").status == 0
    lines = sleeper("export-queue", "splits", "out", "--buckets-per-tablet", "500").stdout
    assert lines == "out:1f4\nout:3e8\n"


def test_a_queue_gets_another_exporter(sleeper: Sleeper, here: Path) -> None:
    assert sleeper(*CREATE, *NULL, "--tries", "3").status == 0
    again = error_of(sleeper(*CREATE, *NULL))
    assert again.startswith("export queue 'out' already exists (replace it with --replace")
    changed = sleeper(
        *("export-queue", "create", "out", "--table", "cities", "--replace"),
        *("--exporter", "webhook:https://example.org/x?token=abc", "--timeout-seconds", "5"),
    )
    assert (changed.status, changed.stderr) == (
        0,
        "changed export queue out: cities on ingest -> webhook:https://example.org/...\n",
    )
    # The path or query of a webhook may be a credential.
    listed = sleeper("export-queue", "list", "--output", "json").rows
    reported = sleeper("report", "export-queues", "--output", "json").rows
    for each in (status_of(sleeper), *listed, *reported):
        assert each["exporter"] == "webhook:https://example.org/..."
    with api.open_instance(here / "here") as instance:
        assert instance.export_queues()[0].exporter == "webhook:https://example.org/..."
    for arguments, expected in (
        (("--on", "compaction"), "with --on ingest (expected this, not compaction"),
        (("--key", "city,year"), "with --key city (expected this, not city,year"),
        (("--value", "year"), "with --value people (expected this, not year"),
        (("--buckets", "3"), "with --buckets 119 (expected this, not 3"),
    ):
        refused = sleeper(
            *("export-queue", "create", "out", "--table", "cities", "--replace"),
            *("--exporter", "null:", *arguments),
        )
        assert error_of(refused).startswith(f"export queue 'out' exists {expected}")


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (("--key", "town"), "'out': the table has no field 'town' (expected one of: city, year, "),
        (("--key", "citi"), "the table has no field 'citi'; did you mean city?"),
        (("--key", "people"), "'out': key field 'people' is nullable (expected a field that is"),
        (("--key", ""), "the table has no field ''"),
        (("--key", "city:StringType"), "field 'city:StringType' has a type (expected the name of"),
        (("--key", "city,city"), "queue 'out': field 'city' is declared more than once"),
        (("--value", "city"), "queue 'out': field 'city' is declared more than once"),
        (("--on", "transaction", "--key", "x:Text"), "'out': field 'x': unknown type 'Text'"),
        (("--exporter", "null"), "exporter 'null' has no colon (expected one of: kafka:, null:"),
        (("--exporter", "table:"), "export queue 'out': table name '' has 0 characters"),
        (("--exporter", "webhook:https://exa mple/x"), "invalid URL (expected https://HOST/PATH)"),
        (("--on", "rows"), "unknown source of exports 'rows' (expected one of: transaction, inge"),
        (("--on", "ingst"), "did you mean ingest?"),
        (("--on", "snapshot"), "'out' on snapshot: table 'cities' is no snapshot table (expected"),
        (("--table", "nowhere"), "'nowhere'"),
        (("--buckets", "0"), "export queue 'out': buckets 0 is out of range (expected 1 to 100,"),
        (("--tries", "0"), "export queue 'out': tries 0 is out of range (expected 1 to 1,000)"),
        (("--timeout-seconds", "601"), "timeout 601 is out of range (expected 1 to 600)"),
        (("--buffer-bytes", "0"), "buffer size 0 is out of range"),
        (("--exporter", "nowhere:"), "unknown kind of exporter 'nowhere'"),
        (("--exporter", "null:x"), "the exporter 'null:x' has no target"),
        (("--exporter", "python:missing"), "missing"),
        (("--exporter", "webhook:https://a:b@example.org"), "expected"),
        (("--exporter", "postgres://u:secret@localhost/db?table=t"), "password"),
        (("--password", "secret"), "expected"),
        (("--option", "x=1"), "option"),
    ],
)
def test_errors_of_a_creation_are_one_line(
    sleeper: Sleeper, here: Path, arguments: tuple[str, ...], expected: str
) -> None:
    refused = error_of(sleeper(*CREATE, *NULL, *arguments))
    assert expected in refused
    assert "secret@" not in refused
    assert sleeper("export-queue", "list").stdout == "0 export queues\n"


@pytest.mark.parametrize(
    "command", ["status", "peek", "drain", "pause", "resume", "splits", "redrive", "delete"]
)
def test_an_unknown_queue_is_an_error(sleeper: Sleeper, here: Path, command: str) -> None:
    missing = error_of(sleeper("export-queue", command, "none"))
    assert "export queue 'none' does not exist" in missing


def test_a_replacement_of_a_queue_that_does_not_exist_creates_it(
    sleeper: Sleeper, here: Path
) -> None:
    made = sleeper(*CREATE, *NULL, "--replace")
    assert (made.status, made.stderr) == (
        0,
        "created export queue out: cities on ingest -> null:\n",
    )


def test_a_name_is_unique_in_the_instance(sleeper: Sleeper, here: Path) -> None:
    assert sleeper(*CREATE, *NULL).status == 0
    other = sleeper(
        *("export-queue", "create", "out", "--table", "loaded", "--on", "snapshot"),
        *("--key", "city", *NULL),
    )
    assert "export queue 'out' already exists, on table cities (expected" in error_of(other)
    named = ("export-queue", "create", "a:b", *CREATE[3:], *NULL)
    assert error_of(sleeper(*named)).startswith("export queue name 'a:b' is invalid (expected")


def test_sources_must_fit_the_table(sleeper: Sleeper, here: Path) -> None:
    loaded = ("export-queue", "create", "x", "--table", "loaded", "--key", "city", *NULL)
    refused = error_of(sleeper(*loaded, "--on", "ingest"))
    assert "is a snapshot table (expected snapshot or" in refused
    assert sleeper(*loaded, "--on", "snapshot").status == 0
    typed = sleeper(
        *("export-queue", "create", "y", "--table", "loaded", "--on", "transaction"),
        *("--key", "id:LongType,city", "--value", "price:DecimalType(9,2),people"),
        *("--exporter", "null:"),
    )
    assert typed.status == 0
    existing = sleeper(
        *("export-queue", "create", "z", "--table", "loaded", "--on", "transaction"),
        *("--key", "city", *NULL, "--existing-rows"),
    )
    assert "is on transactions, so it cannot export existing rows" in error_of(existing)
    no_source = ("export-queue", "create", "z", "--table", "cities", "--key", "city", *NULL)
    assert "'z' has no source of exports (expected one of: " in error_of(sleeper(*no_source))
    no_key = ("export-queue", "create", "z", "--table", "cities", "--on", "ingest", *NULL)
    assert error_of(sleeper(*no_key)) == "export queue 'z' has no key field (expected at least one)"


def test_a_table_with_queues_and_their_followers_stay(sleeper: Sleeper, here: Path) -> None:
    assert sleeper(*CREATE, *NULL).status == 0
    refused = error_of(sleeper("table", "delete", "cities", "--yes"))
    assert refused.startswith("table 'cities' has export queues: out (expected none: delete them")
    follower = error_of(sleeper("follower", "delete", "cities", "export-queue:out"))
    assert follower.startswith("follower 'export-queue:out' is that of an export queue")
    created = error_of(sleeper("follower", "create", "cities", "export-queue:mine"))
    assert created.startswith("follower 'export-queue:mine' is that of an export queue")
    assert sleeper("export-queue", "delete", "out").status == 0
    assert sleeper("table", "delete", "cities", "--yes").status == 0


def test_a_clone_has_no_queues(sleeper: Sleeper, here: Path) -> None:
    assert sleeper(*CREATE, *NULL).status == 0
    assert sleeper("table", "clone", "cities", "copy").status == 0
    (queue,) = sleeper("export-queue", "list", "--output", "json").rows
    assert queue["table"] == "cities"
    assert sleeper("follower", "list", "copy", "--output", "json").rows == []
    assert sleeper("table", "delete", "copy", "--yes").status == 0


def test_queues_are_in_the_reports(sleeper: Sleeper, here: Path) -> None:
    assert sleeper(*CREATE, *NULL).status == 0
    assert sleeper("ingest", "cities", here / "a.csv").status == 0
    for arguments in (("report", "all"), ("report", "export-queues"), ("table", "show", "cities")):
        rows = sleeper(*arguments, "--output", "json").rows
        (queue,) = [row for row in rows if row["report"] == "export-queues"]
        assert (queue["name"], queue["on"], queue["lag"]) == ("out", "ingest", 1)
    with api.open_instance(here / "here") as instance:
        (listed,) = instance.export_queues()
        assert (listed.name, listed.table, listed.lag) == ("out", "cities", 1)


def test_an_interrupted_creation_is_repeated(
    sleeper: Sleeper, here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from sleeper.export_queue.local.store import LocalExportStore

    with monkeypatch.context() as patched:
        patched.setattr(LocalExportStore, "begin", _interrupt)
        assert sleeper(*CREATE, *NULL).status == 130
    (queue,) = sleeper("export-queue", "list", "--output", "json").rows
    assert (queue["state"], queue["pending"]) == ("creating", 0)
    assert "create it again" in error_of(sleeper("export-queue", "status", "out"))
    assert sleeper("ingest", "cities", here / "a.csv").status == 0
    other = error_of(sleeper(*CREATE, "--exporter", "null:"))
    assert other.startswith("export queue 'out' exists with --on ingest --key city --value people ")
    assert sleeper(*CREATE, *NULL).status == 0
    assert sleeper("export-queue", "drain", "out").stderr.startswith("2 exports of queue out, ")


def test_an_interrupted_deletion_is_repeated(
    sleeper: Sleeper, here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from sleeper.export_queue.local.store import LocalExportStore

    assert sleeper(*CREATE, *NULL).status == 0
    with monkeypatch.context() as patched:
        patched.setattr(LocalExportStore, "remove", _interrupt)
        assert sleeper("export-queue", "delete", "out").status == 130
    (queue,) = sleeper("export-queue", "list", "--output", "json").rows
    assert (queue["state"], queue["table"], queue["on"]) == ("deleting", "cities", None)
    for command in ("status", "drain"):
        error = error_of(sleeper("export-queue", command, "out"))
        assert error == (
            "the deletion of export queue 'out' of table 'cities' has not ended: delete it again, "
            "or start `sleeper run`"
        )
    with api.open_instance(here / "here") as instance:
        assert instance.export_queues() == []
    assert sleeper("export-queue", "delete", "out", "--discard").status == 0
    assert sleeper("export-queue", "list").stdout == "0 export queues\n"
    assert sleeper(*CREATE, *NULL).status == 0
    with monkeypatch.context() as patched:
        patched.setattr(LocalExportStore, "remove", _interrupt)
        assert sleeper("export-queue", "delete", "out").status == 130
    assert sleeper(*CREATE, *NULL).status == 0
    assert status_of(sleeper)["lag"] == 0


def _interrupt(*_arguments: object) -> None:
    raise KeyboardInterrupt


def test_help_names_the_fixed_forms(sleeper: Sleeper) -> None:
    text = sleeper("export-queue", "create", "--help").stdout
    for option in ("--table", "--on", "--key", "--value", "--exporter", "--password", "--option"):
        assert option in text
