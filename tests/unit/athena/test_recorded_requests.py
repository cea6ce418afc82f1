"""Reads that the SDK requested, compared with a model: a filter in plain Python over all rows.

The answers are exact, because no recorded constraint is a hint (tests of hints: test_times.py).
tests/approved/test_athena.py has the requests of all other kinds.
"""

import datetime as dt
import json
import math
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from sleeper.athena.service import answer
from sleeper.local.instance import create_local_instance, open_local_instance
from tests.clock import FakeClock
from tests.unit.athena.protocol import Athena, Json, connector_of, plain_rows, read_block, text
from tests.unit.athena.recorded import (
    VERSIONS,
    first_request,
    make_types_table,
    recorded_requests,
    table_rows,
)

READS = {
    f"line {number}, version {version}": (version, raw)
    for number, (version, raw) in enumerate(recorded_requests(), 1)
    if raw["@type"] == "ReadRecordsRequest"
}
# A limit counts rows that meet all of a request's constraints.
OTHER_CONSTRAINTS = ("expression", "orderByClause", "queryPlan")


@pytest.fixture(scope="module")
def types() -> Iterator[Athena]:
    with tempfile.TemporaryDirectory() as folder:
        create_local_instance(Path(folder, "i"), "test")
        instance = open_local_instance(Path(folder, "i"), FakeClock())
        make_types_table(instance)
        yield Athena(connector_of(instance, Path(folder, "spilled")))
        instance.close()


@pytest.mark.parametrize("name", READS)
def test_a_recorded_read_returns_the_rows_of_the_model(types: Athena, name: str) -> None:
    version, request = READS[name]
    request = {**request, "schema": text(types.schema("types"))}
    constraints = request["constraints"]
    expected = [as_athena_reads(row) for row in table_rows() if meets_all(row, constraints)]
    count = 0
    for split in splits(types, version, constraints):
        rows = read(types, request, split)
        within = [row for row in expected if is_within(row, split)]
        if (limit := limit_of(constraints)) is not None:
            assert len(rows) == min(limit, len(within))
            within = [row for row in within if row in rows]
        assert rows == within
        count += len(within)
    # The splits have all expected rows between them.
    assert count == len(expected) or limit_of(constraints) is not None


@pytest.mark.parametrize("version", VERSIONS)
def test_the_columns_of_an_earlier_release_are_read_and_spilled(
    types: Athena, version: int
) -> None:
    request = first_request(version, "ReadRecordsRequest")
    assert request is not None
    assert request["constraints"]["summary"] == {}
    inline, spilled = (
        [row for s in splits(types, version, {"summary": {}}) for row in read(types, changed, s)]
        for changed in (request, {**request, "maxInlineBlockSize": "0"})
    )
    assert inline == spilled == [shown(row) for row in table_rows()]


def splits(athena: Athena, version: int, constraints: Json) -> list[Json]:
    request = first_request(version, "GetSplitsRequest")
    assert request is not None
    page = answer({**request, "constraints": constraints}, athena.connector)
    assert page["continuationToken"] is None
    result: list[Json] = page["splits"]
    return result


def read(athena: Athena, request: Json, split: Json) -> list[Json]:
    """Reads the split with the recorded key, of 16 bytes."""
    members = {name: split[name] for name in ("properties", "spillLocation")}
    response = answer({**request, "split": {**request["split"], **members}}, athena.connector)
    assert ("remoteBlocks" in response) is (request["maxInlineBlockSize"] == "0")
    return [shown(row) for batch in athena.batches(response) for row in plain_rows(batch)]


def shown(row: Mapping[str, Any]) -> Json:
    """A row that equals its like: NaN is text, and so is the zero below 0."""
    return {
        name.lower(): repr(value) if isinstance(value, float) else value
        for name, value in row.items()
    }


def as_athena_reads(row: Json) -> Json:
    """The row without lists of times, and with times of milliseconds, without a zone."""
    time = row["ts"]
    if time is not None:
        below = dt.timedelta(microseconds=time.microsecond % 1000)
        time = (time - below).replace(tzinfo=None)
    return shown({name: v for name, v in row.items() if name != "lt"} | {"ts": time})


def is_within(row: Json, split: Json) -> bool:
    region = json.loads(split["properties"]["region"])["Id"]
    assert (region["minInclusive"], region["maxInclusive"]) == (True, False)
    low, high = region["min"], region["max"]
    return low <= row["id"] and (high is None or row["id"] < high)


def limit_of(constraints: Json) -> int | None:
    limit: int = constraints.get("limit", -1)
    has_others = any(constraints.get(name) for name in OTHER_CONSTRAINTS)
    return None if limit < 0 or has_others else limit


def meets_all(row: Json, constraints: Json) -> bool:
    values = {name.lower(): value for name, value in row.items()}
    return all(meets(values[name], raw) for name, raw in constraints["summary"].items())


def meets(value: Any, raw: Json) -> bool:
    if value is None:
        return bool(raw["nullAllowed"])
    match raw["@type"]:
        case "AllOrNoneValueSet":
            # The SDK wrote `all && nullAllowed`.
            return bool(raw["all"]) or not raw["nullAllowed"]
        case "EquatableValueSet":
            listed = read_block(raw["valueBlock"]).column(0).to_pylist()
            return (value in listed) == raw["whiteList"]
        case _:
            return any(is_in_range(value, each["low"], each["high"]) for each in raw["ranges"])


def is_in_range(value: Any, low: Json, high: Json) -> bool:
    at = order(value)
    if not low["nullValue"]:
        least = order(marker_value(low))
        if at < least or (at == least and low["bound"] == "ABOVE"):
            return False
    if not high["nullValue"]:
        most = order(marker_value(high))
        return at < most or (at == most and high["bound"] == "EXACTLY")
    return True


def marker_value(marker: Json) -> Any:
    return read_block(marker["valueBlock"]).column(0)[0].as_py()


def order(value: Any) -> Any:
    """NaN is above all numbers; text sorts by its bytes."""
    if isinstance(value, float):
        return (math.isnan(value), 0.0 if math.isnan(value) else value)
    return value.encode() if isinstance(value, str) else value
