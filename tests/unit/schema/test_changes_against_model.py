"""Tables whose schema changes, in any order with ingests, deletes and compactions.

Every reader agrees with a plain model at every version.
"""

import random
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import sleeper
from sleeper.admin.schema import change_schema
from sleeper.datafiles.arrow import arrow_schema, arrow_type
from sleeper.processing.field_changes import (
    AddField,
    DropField,
    FieldChange,
    OrderFields,
    RenameField,
    WidenField,
)
from sleeper.schema.defaults import default_value
from sleeper.schema.model import (
    DecimalType,
    Default,
    Field,
    FieldType,
    ListType,
    MapType,
    PrimitiveType,
    Schema,
)
from tests.seeds import choose_seed
from tests.tables.opened import compact

KEYS = 30
STEPS = 10
VALUES: dict[FieldType, list[Any]] = {
    PrimitiveType.INT: [-(2**31), 0, 7],
    PrimitiveType.LONG: [-(2**63), 0, 2**40],
    PrimitiveType.FLOAT: [0.5, -1.25, 3.0],
    PrimitiveType.DOUBLE: [0.1, -1e300],
    DecimalType(5, 2): [Decimal("1.50"), Decimal("-999.99")],
    DecimalType(20, 2): [Decimal("123456789012345678.00")],
    PrimitiveType.STRING: ["", "é", "long text that does not fit into a view"],
    PrimitiveType.BYTE_ARRAY: [b"", b"\0\xff"],
    PrimitiveType.BOOLEAN: [True, False],
    PrimitiveType.TIMESTAMP: [datetime(2026, 1, 31, 12, tzinfo=UTC)],
    PrimitiveType.DATE: [date(2026, 1, 31)],
    ListType(PrimitiveType.STRING): [[], ["a", "b"]],
    MapType(PrimitiveType.STRING, PrimitiveType.LONG): [[], [("a", 1)]],
}
WIDER: dict[FieldType, FieldType] = {
    PrimitiveType.INT: PrimitiveType.LONG,
    PrimitiveType.FLOAT: PrimitiveType.DOUBLE,
    DecimalType(5, 2): DecimalType(20, 2),
}
DEFAULTS: dict[FieldType, Default] = {
    PrimitiveType.INT: 5,
    PrimitiveType.LONG: -5,
    PrimitiveType.FLOAT: 0.1,
    PrimitiveType.DOUBLE: 0.1,
    DecimalType(5, 2): "2.5",
    PrimitiveType.STRING: "new",
    PrimitiveType.BYTE_ARRAY: "AP8=",
    PrimitiveType.BOOLEAN: True,
    PrimitiveType.TIMESTAMP: "2026-01-31T12:00:00+02:00",
    PrimitiveType.DATE: "2026-01-31",
}
NAMES = ["a", "b", 'c "quoted"', "Key", "ü", "value"]


@dataclass
class _Model:
    """Rows by the ids of their fields, deleted keys and schemas, by number."""

    rows: list[tuple[int, int, dict[int, Any]]] = field(default_factory=list)
    deletes: list[tuple[int, int]] = field(default_factory=list)
    schemas: dict[int, Schema] = field(default_factory=dict)

    def schema(self, version: int) -> Schema:
        return self.schemas[max(n for n in self.schemas if n <= version)]

    def at(self, version: int) -> list[dict[str, Any]]:
        fields = self.schema(version).fields
        seen = []
        for number, key, values in self.rows:
            hiding = [n for n, k in self.deletes if k == key and number < n <= version]
            if number <= version and not hiding:
                seen.append({f.name: values.get(f.id, _default(f)) for f in fields})
        return sorted(seen, key=repr)


def _default(each: Field) -> Any:
    return None if each.default is None else default_value(each)


@pytest.mark.parametrize("merge_files_max", [2, 64])
def test_any_changes_show_the_rows_of_the_model(tmp_path: Path, merge_files_max: int) -> None:
    chosen = random.Random(f"{choose_seed()} {merge_files_max}")
    kinds = chosen.sample(list(VALUES), 3)
    values = tuple(Field(n, k, True) for n, k in zip(NAMES, kinds, strict=False))
    schema = Schema((Field("key", PrimitiveType.LONG),), (), values)
    limits = {"sleeper.merge.files.max": str(merge_files_max)}
    model = _Model(schemas={1: schema})
    with sleeper.create_instance(tmp_path / "instance", limits) as instance:
        settings = {"sleeper.table.compaction.files.batch.size": "3"}
        table = instance.create_table("rows", schema, settings, [KEYS // 2])
        for step in range(STEPS):
            before = model.schema(table.version)
            action = chosen.choices(["ingest", "change", "delete", "compact"], [6, 8, 2, 2])[0]
            if action == "ingest" or not step:
                rows = [_row(chosen, before) for _ in range(chosen.randint(1, 20))]
                table.ingest(_arrow(before, rows))
                model.rows += [(table.version, row[1], row) for row in rows]
            elif action == "change":
                change = _change(chosen, before)
                result = change_schema(instance._ports, "rows", [change])
                assert result.number == table.version
                model.schemas[table.version] = result.schema
                assert table.schema == result.schema
            elif action == "delete":
                key = chosen.randrange(KEYS)
                table.delete(keys=[[key]])
                model.deletes.append((table.version, key))
            else:
                compact(instance)
            _check(instance, table, model, chosen)
        for version in range(1, table.version + 1):
            expected = model.at(version)
            assert _rows(table.query(as_of=version).to_arrow()) == expected, version
            if version % 5 == 0:
                found = instance.sql("SELECT * FROM rows", as_of=version).to_arrow()
                assert _rows(found) == expected, version


def _check(instance: Any, table: Any, model: _Model, chosen: random.Random) -> None:
    expected = model.at(table.version)
    schema = model.schema(table.version)
    found = table.query().to_arrow()
    assert found.schema == arrow_schema(schema)
    assert _rows(found) == expected
    assert _rows(instance.sql("SELECT * FROM rows").to_arrow()) == expected
    key = chosen.randrange(KEYS)
    of_key = [row for row in expected if row["key"] == key]
    assert _rows(table.query(keys=[[key]]).to_arrow()) == of_key
    assert _rows(instance.sql(f"SELECT * FROM rows WHERE key = {key}").to_arrow()) == of_key
    if schema.values:
        name = chosen.choice(schema.values).name
        columns = table.query(columns=[name]).to_arrow()
        assert _rows(columns) == sorted(({name: row[name]} for row in expected), key=repr)


def _change(chosen: random.Random, schema: Schema) -> FieldChange:
    """Returns a change that can be made."""
    free = [n for n in NAMES if n not in {f.name for f in schema.fields}]
    names = [f.name for f in schema.values]
    widening = [f for f in schema.values if f.type in WIDER]
    while True:
        match chosen.choice(["add", "drop", "rename", "widen", "order"]):
            case "add" if free:
                kind = chosen.choice(list(VALUES))
                default = chosen.choice([None, DEFAULTS.get(kind)])
                new = Field(chosen.choice(free), kind, default=default)
                return AddField(new, chosen.choice([None, "key", *names]))
            case "drop" if names:
                return DropField(chosen.choice(names))
            case "rename" if names and free:
                return RenameField(chosen.choice(names), chosen.choice(free))
            case "widen" if widening:
                each = chosen.choice(widening)
                return WidenField(each.name, WIDER[each.type])
            case "order" if len(names) > 1:
                return OrderFields((*names[1:], names[0]))
            case _:
                continue


def _row(chosen: random.Random, schema: Schema) -> dict[int, Any]:
    row: dict[int, Any] = {1: chosen.randrange(KEYS)}
    for each in schema.values:
        row[each.id] = chosen.choice([None, *VALUES[each.type]])
    return row


def _arrow(schema: Schema, rows: list[dict[int, Any]]) -> pa.Table:
    columns = {
        f.name: pa.array([row[f.id] for row in rows], arrow_type(f.type)) for f in schema.fields
    }
    return pa.table(columns)


def _rows(found: pa.Table) -> list[dict[str, Any]]:
    return sorted(found.to_pylist(), key=repr)
