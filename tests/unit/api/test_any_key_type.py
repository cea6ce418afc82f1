"""Tables with keys of any types, in their whole life, against a plain model."""

import json
import random
from collections.abc import Callable, Iterable
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import sleeper
from sleeper.datafiles.arrow import arrow_schema
from sleeper.query.service import open_query
from sleeper.reports.check import check_table
from sleeper.schema.key_values import check_key_value
from sleeper.schema.model import Field, Key, PrimitiveType, Schema, schema_to_json
from sleeper.schema.type_text import parse_type
from sleeper.serve.rows import parse_query
from sleeper.splitting.service import SplitStatus, split_table
from tests.seeds import choose_seed
from tests.tables.opened import compact

Values = Callable[[random.Random], Any]
Row = tuple[Any, ...]

KINDS: dict[str, Values] = {
    "TimestampType": lambda r: datetime(2013, 1, r.randint(1, 31), r.randint(0, 23), tzinfo=UTC),
    "DateType": lambda r: date(2013, r.randint(1, 12), r.randint(1, 28)),
    "BooleanType": lambda r: r.random() < 0.5,
    "DecimalType(9,2)": lambda r: Decimal(r.randint(-400, 400)).scaleb(-2),
    "DecimalType(18,0)": lambda r: Decimal(r.randint(-(10**18) + 1, 10**18 - 1)),
    "IntType": lambda r: r.randint(-20, 20),
    "StringType": lambda r: r.choice(["", "a", "b", "é"]) * r.randint(0, 3),
}
NEW = [*KINDS][:5]
STRATEGIES = ["one_file_per_leaf", "one_reference_per_leaf"]


def literal(value: Any) -> str:
    """Returns a value as a literal of SQL."""
    match value:
        case datetime():
            return f"TIMESTAMP '{value:%Y-%m-%d %H:%M:%S}'"
        case date():
            return f"DATE '{value}'"
        case bool() | int() | Decimal():
            return str(value)
    return f"'{value}'"


class _Model:
    """The rows of each version of a table, and the same questions as of the table."""

    def __init__(self, table: sleeper.Table, chosen: random.Random) -> None:
        self.table = table
        self.chosen = chosen
        self.names = [each.name for each in table.schema.fields]
        self.rows: list[Row] = []
        self.versions: dict[int, list[Row]] = {}

    def record(self, rows: Iterable[Row]) -> None:
        self.rows = [*rows]
        self.versions[self.table.version] = self.rows

    def check(self, found: pa.Table, expected: Iterable[Row]) -> None:
        got = [tuple(row.values()) for row in found.to_pylist()]
        assert sorted(got) == sorted(expected)
        keys = len(self.table.schema.keys)
        assert [row[:keys] for row in got] == sorted(row[:keys] for row in got)


@pytest.mark.parametrize(("kind", "strategy"), [*zip(NEW, STRATEGIES * 3, strict=False)])
def test_any_history_has_the_rows_of_the_model(tmp_path: Path, kind: str, strategy: str) -> None:
    chosen = random.Random(f"{choose_seed()} {kind} {strategy}")
    others = chosen.sample([*KINDS], 2)
    kinds = [kind, *others] if chosen.random() < 0.5 else [others[0], kind, others[1]]
    row_keys = chosen.choice([1, 2]) if kinds[0] == kind else 2
    fields = tuple(Field(f"k{n}", parse_type(each)) for n, each in enumerate(kinds))
    value = (Field("v", PrimitiveType.LONG),)
    schema = Schema(fields[:row_keys], fields[row_keys:], value)

    def key() -> Row:
        return tuple(KINDS[each](chosen) for each in kinds)

    settings = {
        "sleeper.table.partition.splitting.threshold": "40",
        "sleeper.table.compaction.files.batch.size": "3",
        "sleeper.table.ingest.file.writing.strategy": strategy,
    }
    with sleeper.create_instance(tmp_path / "instance") as instance:
        table = instance.create_table("rows", json.loads(schema_to_json(schema)), settings)
        model = _Model(table, chosen)
        made, splits = 0, 0
        for step in range(9):
            if step % 3 != 2:
                rows = [(*key(), made + n) for n in range(60)]
                made += len(rows)
                columns = zip(*rows, strict=True)
                kind_of = arrow_schema(schema)
                arrays = [pa.array(c, t) for c, t in zip(columns, kind_of.types, strict=True)]
                table.ingest(pa.table(arrays, schema=kind_of))
                model.record([*model.rows, *rows])
                results = split_table(instance._ports, "rows")
                splits += sum(each.status is SplitStatus.SPLIT for each in results)
            elif chosen.random() < 0.5:
                compact(instance)
            else:
                gone = chosen.choice(model.rows)[:row_keys]
                low, high = sorted([key()[0], key()[0]])
                ranges = [(low, high)] if low < high else []
                table.delete(keys=[gone], ranges=ranges)
                model.record(
                    row
                    for row in model.rows
                    if row[:row_keys] != gone and not (ranges and low <= row[0] < high)
                )
            _ask(instance, model, row_keys, key)
        assert splits or kinds[0] == "BooleanType"
        assert not check_table(instance._ports, "rows").findings
        for version, expected in model.versions.items():
            model.check(table.query(as_of=version).to_arrow(), expected)


def _ask(instance: sleeper.Instance, model: _Model, row_keys: int, key: Callable[[], Row]) -> None:
    table, chosen, rows = model.table, model.chosen, model.rows
    model.check(table.query().to_arrow(), rows)
    wanted = [chosen.choice(rows)[:row_keys] for _ in range(5)] + [key()[:row_keys]]
    expected = [row for row in rows if row[:row_keys] in wanted]
    model.check(table.query(keys=wanted).to_arrow(), expected)
    one = chosen.choice(rows)[:row_keys]
    model.check(table.query(keys=[one]).to_arrow(), [r for r in rows if r[:row_keys] == one])
    low, high = sorted([key()[0], key()[0]])
    inside = [row for row in rows if low <= row[0] < high]
    if low < high:
        model.check(table.query(ranges=[(low, high)]).to_arrow(), inside)
    both = [row for row in rows if low <= row[0] <= high]
    region = {"k0": {"min": low, "max": high, "maxInclusive": True}}
    as_json = json.loads(json.dumps(region, default=str))
    model.check(table.query(regions=[as_json]).to_arrow(), both)
    condition = f"k0 BETWEEN {literal(low)} AND {literal(high)}"
    order = f"SELECT * FROM rows WHERE {condition} ORDER BY k0, k1, k2"
    model.check(instance.sql(order).to_arrow(), both)
    names = [f"k{n}" for n in range(row_keys)]
    equal = " AND ".join(f"{n} = {literal(v)}" for n, v in zip(names, one, strict=True))
    counted = instance.sql(f"SELECT count(*) AS n FROM rows WHERE {equal}").to_arrow()
    assert counted["n"][0].as_py() == sum(row[:row_keys] == one for row in rows)


def test_the_state_has_the_bounds_of_files(tmp_path: Path) -> None:
    fields = [
        {"name": "at", "type": "TimestampType"},
        {"name": "day", "type": "DateType"},
        {"name": "is_open", "type": "BooleanType"},
        {"name": "fare", "type": {"DecimalType": {"precision": 9, "scale": 2}}},
    ]
    times = [datetime(2013, 1, 1, 5, 15, tzinfo=UTC), datetime(2013, 1, 2, tzinfo=UTC)]
    rows = [
        {"at": times[0], "day": date(2013, 1, 1), "is_open": True, "fare": Decimal("1.50")},
        {"at": times[1], "day": date(1969, 12, 31), "is_open": False, "fare": Decimal("-2")},
    ]
    with sleeper.create_instance(tmp_path / "instance") as instance:
        table = instance.create_table("rides", {"rowKeyFields": fields})
        table.ingest(pa.Table.from_pylist(rows, arrow_schema(table.schema)))
        with instance._ports.table("rides").state.reading() as state:
            (file,) = state.files.all()

        def stored(*values: object) -> Key:
            return tuple(map(check_key_value, table.schema.row_keys, values))

        assert file.smallest_key == stored(times[0], date(1969, 12, 31), False, Decimal("-2"))
        assert file.largest_key == stored(times[1], date(2013, 1, 1), True, "1.5")
        assert file.smallest_key == (1_357_017_300_000_000, -1, 0, -200)


def test_messages_and_changes_have_readable_keys(tmp_path: Path) -> None:
    kinds = ["TimestampType", "DateType", "BooleanType", "DecimalType(9,2)"]
    fields = tuple(Field(f"k{n}", parse_type(kind)) for n, kind in enumerate(kinds))
    schema = Schema(fields, (), (Field("v", PrimitiveType.LONG),))
    rows = [
        (datetime(2013, 1, 1 + n, tzinfo=UTC), date(2013, 1, 1 + n), n % 2 == 0, Decimal(n) / 4, n)
        for n in range(8)
    ]
    kind_of = arrow_schema(schema)
    columns = zip(*rows, strict=True)
    arrays = [pa.array(c, t) for c, t in zip(columns, kind_of.types, strict=True)]
    settings = {"sleeper.table.rows": "latest"}
    with sleeper.create_instance(tmp_path / "instance") as instance:
        table = instance.create_table("rows", json.loads(schema_to_json(schema)), settings)
        for _ in range(2):
            table.ingest(pa.table(arrays, schema=kind_of))
        body = {
            "keys": [["2013-01-02T00:00:00Z", "2013-01-02", False, 0.25]],
            "ranges": [["2013-01-04", 1_357_344_000_000_000]],
            "regions": [{"k3": {"min": "1.5"}, "k2": {"min": True}}],
        }
        query = parse_query(table.schema, body)
        found = open_query(instance._ports, "rows", query).read_all()
        assert found["v"].to_pylist() == [1, 3, 6]
        table.delete(regions=[{"k2": {"max": True}, "k3": {"max": "1.00"}}])
        compact(instance)
        assert table.query(columns=["v"]).to_arrow()["v"].to_pylist() == [0, 2, 4, 5, 6, 7]
        *_, change = table.changes(from_number=1)
        (region,) = change.regions
        assert region["k0"] == {
            "min": None,
            "minInclusive": True,
            "max": None,
            "maxInclusive": False,
        }
        assert (region["k2"]["max"], region["k3"]["max"]) == (True, "1.00")
        (shown,) = change.to_arrow()["region"].to_pylist()
        assert shown["k0"] == {"min": None, "max": None}
        assert shown["k3"] == {"min": None, "max": Decimal("1.00")}
