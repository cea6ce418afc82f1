"""`sleeper delete --keys-from`: the keys of files, and what it refuses."""

from pathlib import Path

from tests.unit.cli.conftest import Sleeper


def test_the_keys_of_several_files_are_deleted_once(
    cities: Sleeper, rows_file: Path, tmp_path: Path
) -> None:
    assert cities("ingest", "cities", rows_file).status == 0
    (tmp_path / "gone.jsonl").write_text('{"city": "Athens", "mayor": {"since": 1}}\n')
    (tmp_path / "more.csv").write_text('mayor,city\n,"Paris, Texas"\n,Athens\n')
    command = ("delete", "cities", "--keys-from", tmp_path / "gone.jsonl")
    command += ("--keys-from", tmp_path / "more.csv", "--id", "once")
    deleted = cities(*command)
    assert deleted.stderr == ("deleted rows with 2 keys from cities: transaction 3 (delete once)\n")
    left = cities("query", "cities", "--columns", "city", "--format", "csv").stdout
    assert left.split() == ['"city"', '"Oslo"']
    assert cities(*command).stderr == "delete once is already done: transaction 3\n"


def test_keys_from_files_are_refused_with_place_and_reason(cities: Sleeper, tmp_path: Path) -> None:
    keys = tmp_path / "keys.jsonl"
    keys.write_text('{"city": "Oslo"}\n{"city": 7}\n')
    refused = cities("delete", "cities", "--keys-from", keys)
    assert refused.status == 1
    assert f"file {keys}, row 2: field 'city'" in refused.stderr
    assert "expected no --key" in cities("delete", "cities", "--all", "--keys-from", keys).stderr
    assert "expected --all" in cities("delete", "cities", "--region", "{}").stderr
    assert "expected --all" in cities("delete", "cities", "--range", ":").stderr
    submitted = cities("delete", "cities", "--submit", "--keys-from", keys)
    assert (submitted.status, "--submit" in submitted.stderr) == (2, True)
