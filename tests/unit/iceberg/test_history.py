"""Any history: at each published number, other engines return the rows of our own query."""

import contextlib
import json
import random
from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import sleeper
from sleeper.errors import InvalidRequestError
from sleeper.schema.model import type_name
from tests.engines import ENGINES, Readers, Rows, count_rows
from tests.examples import examples
from tests.seeds import choose_seed

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]

SCHEMA = {
    "rowKeyFields": [{"name": "name", "type": "StringType"}, {"name": "at", "type": "LongType"}],
    "sortKeyFields": [{"name": "day", "type": "DateType"}],
    "valueFields": [
        {"name": "n", "type": "IntType", "nullable": True},
        {"name": "tags", "type": {"ListType": {"elementType": "StringType"}}},
        {"name": "counts", "type": {"MapType": {"keyType": "StringType", "valueType": "LongType"}}},
        {"name": "sizes", "type": {"MapType": {"keyType": "StringType", "valueType": "LongType"}}},
        {"name": "price", "type": {"DecimalType": {"precision": 9, "scale": 2}}},
        {"name": "time", "type": "TimestampType", "nullable": True},
        {"name": "doc", "type": "JSONType", "nullable": True},
    ],
}
# Files of rows that are aggregated do not differ for other engines, so one of them reads them.
AGGREGATIONS = "sum(n),map_sum(counts),map_max(sizes),min(price),max(time)"
PROPERTIES = {
    "sleeper.table.partition.splitting.threshold": "60",
    "sleeper.table.compaction.strategy.class": "BasicCompactionStrategy",
    "sleeper.table.compaction.files.batch.size": "2",
    "sleeper.table.gc.delay.minutes": "0",
    "sleeper.table.ingest.file.writing.strategy": "one_reference_per_leaf",
}
ADDED = {
    "LongType": 7,
    "StringType": "é",
    "ListType(LongType)": [1, 2],
    "MapType(StringType,LongType)": {"x": 1},
    "JSONType": {"a": [1, None]},
}
LETTERS = "abdegé\U0001f600"
STEPS = {"append": 25, "latest": 25, "aggregate": 16}


CHOICES = {
    "append": {},
    "latest": {"sleeper.table.rows": "latest"},
    "aggregate": {"sleeper.table.aggregations": AGGREGATIONS},
}


def schema_of(choice: str) -> dict[str, Any]:
    if choice != "aggregate":
        return SCHEMA
    values = [each for each in SCHEMA["valueFields"] if f"({each['name']})" in AGGREGATIONS]
    return {**SCHEMA, "valueFields": values}


class History:
    """A table with a random history, and the rows of each published version."""

    def __init__(self, folder: Path, seed: int, choice: str) -> None:
        self.random = random.Random(seed)
        self.instance = sleeper.create_instance(folder / "instance")
        self.table = self.instance.create_table(
            "t",
            json.dumps(schema_of(choice)),
            split_points=["c", "f"],
            properties={**PROPERTIES, **CHOICES[choice]},
        )
        self.location = folder / "published"
        self.published: dict[int, Rows] = {}
        self.is_json: dict[int, dict[str, bool]] = {}
        self.names = iter(range(10_000))
        self.engines = ["pyiceberg"] if choice == "aggregate" else [*ENGINES]
        self.letters = LETTERS
        self.choice = choice

    def step(self) -> None:
        steps: list[tuple[int, Callable[[], object]]] = [
            (8, self.ingest),
            (1, self.delete_keys),
            (1, self.delete_range),
            (4, self.compact),
            (2, self.split),
            (0 if self.choice == "aggregate" else 2, self.change_schema),
            (1, self.restore),
            (1, self.collect),
        ]
        (chosen,) = self.random.choices([s for _, s in steps], [w for w, _ in steps])
        chosen()

    def ingest(self) -> None:
        # Of the leaves of a shared file, one may get more files, and be compacted alone.
        self.letters = self.random.choice(["ab", "de", "gé\U0001f600", LETTERS])
        rows = [self.make_row() for _ in range(self.random.randint(1, 40))]
        has_operations = self.choice == "latest"
        if has_operations:
            operations = ["upsert", "upsert", "delete"]
            rows = [{**row, "op": self.random.choice(operations)} for row in rows]
        self.table.ingest(rows, op_column="op" if has_operations else None)

    def make_row(self) -> dict[str, Any]:
        number = self.random.randint(0, 999)
        values: dict[str, Any] = {
            "n": self.random.choice([None, number]),
            "tags": [f"tag{i}" for i in range(number % 3)],
            "counts": {f"c{i}": number for i in range(number % 3)},
            "sizes": {f"s{i}": -number for i in reversed(range(number % 4))},
            "price": Decimal(number) / 100,
            "time": datetime(2020, 1, 1, tzinfo=UTC) + timedelta(seconds=number),
            "doc": {"n": number, "é": [None, {"b": 1.5}]} if number % 3 else None,
        }
        # Few keys are equal by chance, and aggregations need some.
        at = number % 5 if self.choice == "aggregate" else number
        row = {"name": self.make_name(), "at": at, "day": datetime(2020, 1, 1).date()}
        for field in self.table.schema.values:
            added = ADDED.get(type_name(field.type), number) if number % 2 else None
            row[field.name] = values.get(field.name, added)
        return row

    def make_name(self) -> str:
        return self.random.choice(self.letters) * self.random.randint(1, 3)

    def delete_keys(self) -> None:
        rows = self.table.query().to_arrow().to_pylist()
        chosen = self.random.sample(rows, min(len(rows), 5))
        if chosen:
            self.table.delete(keys=[(row["name"], row["at"]) for row in chosen])

    def delete_range(self) -> None:
        low, high = sorted([self.make_name(), self.make_name() + "z"], key=str.encode)
        self.table.delete(
            regions=[{"name": {"min": low, "max": high}, "at": {"min": 0, "max": 500}}]
        )

    def compact(self) -> None:
        is_full = self.random.random() < (0.8 if self.choice == "aggregate" else 0.3)
        self.table.compact(full=is_full)
        self.instance.run_until_idle()

    def split(self) -> None:
        self.table.split()
        self.instance.run_until_idle()

    def change_schema(self) -> None:
        name = f"f{next(self.names)}"
        values = [field.name for field in self.table.schema.values]
        added = [each for each in values if each.startswith("f")]
        match self.random.randint(0, 3):
            case 1 if added:
                self.table.drop_field(self.random.choice(added))
                # Daft 0.7.26 reads other columns in place of those after a dropped one, and fails:
                # also in tables that PyIceberg wrote.
                self.engines = [each for each in ENGINES if each != "daft"]
            case 2:
                self.table.rename_field(self.random.choice(added or ["n"]), name)
            case 3 if "n" in values and str(self.table.schema.field("n").type.value) == "IntType":
                self.table.widen_field("n", "LongType")
            case _:
                self.table.add_field(name, self.random.choice(list(ADDED)))

    def restore(self) -> None:
        if self.published:
            # The version may be collected, or have another schema.
            with contextlib.suppress(InvalidRequestError):
                self.table.restore(self.random.choice([*self.published]))

    def collect(self) -> None:
        self.table.gc()

    def publish(self) -> Any:
        published = self.instance.publish_iceberg("t", self.location)
        result = self.table.query(as_of=published.number).to_arrow()
        is_json = {f.name: isinstance(f.type, pa.JsonType) for f in result.schema}
        self.is_json[published.number] = is_json
        rows = count_rows(result)
        assert self.published.setdefault(published.number, rows) == rows
        assert published.rows == rows.total()
        return published


@pytest.mark.parametrize("example", range(examples(1)))
@pytest.mark.parametrize("choice", [*CHOICES])
def test_engines_return_the_rows_of_each_published_version(
    tmp_path: Path, readers: Readers, choice: str, example: int
) -> None:
    history = History(tmp_path, choose_seed() + example, choice)
    with history.instance:
        for _ in range(STEPS[choice]):
            history.step()
            if choice == "aggregate" or history.random.random() < 0.5:
                # Other tables may have to be compacted first.
                refusals = () if choice == "append" else (InvalidRequestError,)
                with contextlib.suppress(*refusals):
                    check(history, readers)
        history.table.compact(full=True)
        history.instance.run_until_idle()
        check(history, readers)
        check_older(history, readers)
        # Of tables that aggregate, only compacted versions are published.
        assert len(history.published) > (0 if choice == "aggregate" else 2)


def check(history: History, readers: Readers) -> None:
    published = history.publish()
    expected = history.published[published.number]
    # Polars 2.1 takes JSON as bytes, and fails.
    columns = [name for name, is_json in history.is_json[published.number].items() if not is_json]
    for engine in history.engines:
        if engine == "polars":
            found = readers.read(engine, metadata=published.metadata_url, columns=columns)
            assert count_rows(found) == select(expected, columns), engine
        else:
            found = readers.read(engine, metadata=published.metadata_url)
            assert count_rows(found) == expected, engine


def select(rows: Rows, columns: list[str]) -> Rows:
    result: Rows = Counter()
    for row, count in rows.items():
        result[tuple(each for each in row if each[0] in columns)] += count
    return result


def check_older(history: History, readers: Readers) -> None:
    """All snapshots that the metadata lists are readable, with the schema of their version."""
    published = history.publish()
    numbers = [each["snapshot-id"] for each in published.metadata["snapshots"]]
    assert set(numbers) <= set(history.published)
    for number in numbers:
        found = readers.read("pyiceberg", number, metadata=published.metadata_url)
        assert count_rows(found) == history.published[number], number
