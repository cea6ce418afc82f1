"""Deletes of any region, key type and number of fields, against a plain model."""

import json
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import sleeper
from sleeper.datafiles.arrow import arrow_type
from sleeper.datafiles.key_values import from_key_values, key_values
from sleeper.datafiles.write import key_file
from sleeper.deletion import keys as deleted_keys
from sleeper.deletion.keys import delete_rows
from sleeper.partitions.region import Range, Region
from sleeper.schema.key_values import plain_key_value
from sleeper.schema.model import Field, PrimitiveType, Schema, next_key_value, schema_to_json
from sleeper.schema.type_text import parse_type
from tests.seeds import choose_seed
from tests.tables.opened import compact

VALUES: dict[str, list[Any]] = {
    "StringType": ["", "\0", "a", "a\0", "b", "é", "\uffff", "\U0010ffff", "\U0010ffff" * 3],
    "ByteArrayType": [b"", b"\0", b"\0\0", b"a", b"\xfe", b"\xff", b"\xff\0", b"\xff\xff"],
    "IntType": [-(2**31), -(2**31) + 1, -1, 0, 1, 2, 2**31 - 2, 2**31 - 1],
    "LongType": [-(2**63), -(2**63) + 1, -1, 0, 1, 2, 2**63 - 2, 2**63 - 1],
    # The form that sorts: microseconds, days, 0 and 1, units of the last decimal place
    "TimestampType": [-(2**63), -(2**63) + 1, -1, 0, 1, 1_357_017_300_000_000, 2**63 - 1],
    "DateType": [-(2**31), -(2**31) + 1, -1, 0, 1, 15_706, 2**31 - 1],
    "BooleanType": [0, 1, 0, 1, 1],
    "DecimalType(18,4)": [-(10**18) + 1, -200, -1, 0, 1, 2, 100, 10**18 - 1],
}
KINDS = [
    ("StringType",),
    ("ByteArrayType",),
    ("IntType",),
    ("LongType",),
    ("StringType", "IntType"),
    ("LongType", "ByteArrayType"),
    ("IntType", "StringType", "LongType"),
    ("TimestampType",),
    ("BooleanType", "DecimalType(18,4)"),
    ("DateType", "BooleanType", "TimestampType"),
]

Row = tuple[Any, ...]


class _Model:
    """Rows and deletes by the number of their transaction."""

    def __init__(self) -> None:
        self.rows: list[tuple[int, Row]] = []
        self.deletes: list[tuple[int, Sequence[Region]]] = []

    def at(self, version: int) -> list[Row]:
        seen = []
        for number, row in self.rows:
            hiding = (r for n, rs in self.deletes if number < n <= version for r in rs)
            if number <= version and not any(r.contains(row[:-1]) for r in hiding):
                seen.append(row)
        return sorted(seen)


@pytest.mark.parametrize("kinds", KINDS, ids="-".join)
def test_any_deletes_leave_the_rows_of_the_model(
    tmp_path: Path,
    kinds: tuple[str, ...],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # Some deletes of many keys are key files, of several row groups.
    monkeypatch.setattr(deleted_keys, "REGION_BYTES_MAX", 300)
    monkeypatch.setattr(key_file, "_ROW_GROUP_KEYS", 3)
    chosen = random.Random(f"{choose_seed()} {kinds}")
    names = [f"k{i}" for i in range(len(kinds))]
    keys = tuple(Field(n, parse_type(k)) for n, k in zip(names, kinds, strict=True))
    schema = schema_to_json(Schema(keys, (), (Field("value", PrimitiveType.LONG),)))
    model = _Model()
    made = 0
    limits = {"sleeper.merge.files.max": chosen.choice(["64", "2"])}
    with sleeper.create_instance(tmp_path / "instance", limits) as instance:
        settings = {"sleeper.table.compaction.files.batch.size": "3"}
        point = plain_key_value(keys[0], VALUES[kinds[0]][4])
        table = instance.create_table("rows", json.loads(schema), settings, [point])
        fields = table.schema.row_keys
        versions = []
        for step in range(12):
            action = chosen.choices(["ingest", "delete", "compact"], [5, 5, 1])[0]
            if action == "ingest" or not step:
                rows = []
                for _ in range(chosen.randint(1, 40)):
                    made += 1
                    rows.append((*(chosen.choice(VALUES[k]) for k in kinds), made))
                columns = list(zip(*rows, strict=True))
                arrays = [
                    from_key_values(c, arrow_type(parse_type(k)))
                    for c, k in zip(columns, kinds, strict=False)
                ]
                table.ingest(pa.table([*arrays, pa.array(columns[-1])], [*names, "value"]))
                model.rows += [(table.version, row) for row in rows]
            elif action == "delete":
                many = chosen.choice([1, 2, 5, 12, 30])
                regions = [_region(chosen, fields, kinds) for _ in range(many)]
                result = delete_rows(instance._ports, "rows", regions)
                assert result.number == table.version
                model.deletes.append((table.version, regions))
            else:
                compact(instance)
            versions.append(table.version)
            _check(instance, table, model, chosen, kinds, names, table.version)
        for version in versions:
            got = _rows(table.query(as_of=version).to_arrow(), names)
            assert got == model.at(version), version
            counted = instance.sql("SELECT count(*) AS n FROM rows", as_of=version).to_arrow()
            assert counted["n"][0].as_py() == len(model.at(version))


def _check(
    instance: Any, table: Any, model: _Model, chosen: random.Random, kinds: Any, names: Any, v: int
) -> None:
    expected = model.at(v)
    assert _rows(table.query().to_arrow(), names) == expected
    counted = instance.sql("SELECT count(*) AS n FROM rows").to_arrow()["n"][0].as_py()
    assert counted == len(expected)
    wanted = {tuple(chosen.choice(VALUES[k]) for k in kinds) for _ in range(12)}
    given = [[*map(plain_key_value, table.schema.row_keys, key)] for key in wanted]
    got = _rows(table.query(keys=given).to_arrow(), names)
    assert got == [row for row in expected if row[:-1] in wanted]
    text = "SELECT * FROM rows WHERE value % 2 = 0"
    assert _rows(instance.sql(text).to_arrow(), names) == [r for r in expected if r[-1] % 2 == 0]
    joined = "SELECT count(*) AS n FROM rows a JOIN rows b ON " + " AND ".join(
        f"a.{n} = b.{n}" for n in names
    )
    pairs = sum(1 for a in expected for b in expected if a[:-1] == b[:-1])
    assert instance.sql(joined).to_arrow()["n"][0].as_py() == pairs


def _region(chosen: random.Random, fields: Any, kinds: Any) -> Region:
    whole = chosen.random() < 0.05
    ranges = []
    is_key = chosen.random() < 0.5
    for field, kind in zip(fields, kinds, strict=True):
        values = VALUES[kind]
        low = chosen.choice(values)
        later = [v for v in values if v > low]
        if whole:
            ranges.append(Range(values[0], None))
        elif is_key or not later:
            ranges.append(Range(low, next_key_value(field, low)))
        else:
            ranges.append(Range(low, chosen.choice([*later, None])))
    return Region(tuple(ranges))


def _rows(found: pa.Table, names: list[str]) -> list[Row]:
    columns = [key_values(found[n].combine_chunks()) for n in [*names, "value"]]
    return sorted(zip(*columns, strict=True))
