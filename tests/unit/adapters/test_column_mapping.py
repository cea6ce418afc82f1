"""Columns of sources that have other names than the fields of the sink, and constants."""

import csv
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import sleeper
from sleeper.adapters.column_mapping import ColumnMapping
from sleeper.api import Instance
from sleeper.errors import InvalidRequestError

SCHEMA: dict[str, list[dict[str, Any]]] = {
    "rowKeyFields": [{"name": "shop", "type": "StringType"}, {"name": "id", "type": "LongType"}],
    "valueFields": [
        {"name": "price", "type": "DoubleType", "nullable": True},
        {"name": "day", "type": "DateType", "nullable": True},
    ],
}
COLUMNS = {"id": "order_id", "price": "Price in €"}
CONSTANTS = {"shop": "eu"}
ROWS: list[dict[str, Any]] = [
    {"order_id": 2, "Price in €": 1.5, "day": "2026-03-01", "note": "x", "shop": "not read"},
    {"order_id": 1, "Price in €": None, "day": None, "note": None, "shop": "not read"},
]


@pytest.fixture
def instance(tmp_path: Path) -> Iterator[Instance]:
    with sleeper.create_instance(tmp_path / "here", {"sleeper.engine.threads": "2"}) as made:
        made.create_table("t", SCHEMA)
        yield made


def write_csv(path: Path) -> None:
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, ROWS[0])
        writer.writeheader()
        writer.writerows(ROWS)


def write_lines(path: Path) -> None:
    path.write_text("".join(json.dumps(row) + "\n" for row in ROWS))


def write_parquet(path: Path) -> None:
    table = pa.Table.from_pylist(ROWS)
    days = table["day"].cast(pa.date32())
    pq.write_table(table.set_column(table.schema.get_field_index("day"), "day", days), path)


WRITERS = {"a.csv": write_csv, "a.jsonl": write_lines, "a.parquet": write_parquet}


def rows_of(instance: Instance) -> list[tuple[Any, ...]]:
    rows = instance.table("t").query().to_pylist()
    return [(row["shop"], row["id"], row["price"], str(row["day"])) for row in rows]


EXPECTED = [("eu", 1, None, "None"), ("eu", 2, 1.5, "2026-03-01")]


@pytest.mark.parametrize("name", WRITERS)
def test_fields_are_read_from_mapped_columns_of_files(
    instance: Instance, tmp_path: Path, name: str
) -> None:
    WRITERS[name](tmp_path / name)
    made = instance.create_adapter(
        "a", str(tmp_path / name), "t", columns=COLUMNS, constants=CONSTANTS
    )
    assert made in instance.adapters()
    assert instance.run_adapter("a").rows == 2
    assert rows_of(instance) == EXPECTED


def test_fields_are_read_from_mapped_fields_of_tables(instance: Instance) -> None:
    key = [{"name": "order_id", "type": "LongType"}]
    values = [
        {**each, "name": COLUMNS.get(each["name"], each["name"])} for each in SCHEMA["valueFields"]
    ]
    values.append({"name": "note", "type": "StringType", "nullable": True})
    orders = instance.create_table("orders", {"rowKeyFields": key, "valueFields": values})
    days = [{**row, "day": None} for row in ROWS]
    orders.ingest(pa.Table.from_pylist(days, orders.arrow_schema))
    instance.create_adapter(
        "a", "table:orders", "t", columns=COLUMNS, constants={**CONSTANTS, "day": "2026-03-02"}
    )
    assert instance.run_adapter("a").rows == 2
    assert rows_of(instance) == [("eu", 1, None, "2026-03-02"), ("eu", 2, 1.5, "2026-03-02")]


@pytest.mark.parametrize("name", WRITERS)
def test_a_mapped_column_that_is_missing_is_refused(
    instance: Instance, tmp_path: Path, name: str
) -> None:
    """A nullable field may have no column of its name, but a mapped one must exist."""
    WRITERS[name](tmp_path / name)
    columns = {**COLUMNS, "day": "Day"}
    if name.endswith(".jsonl"):
        instance.create_adapter(
            "a", str(tmp_path / name), "t", columns=columns, constants=CONSTANTS
        )
        return
    with pytest.raises(InvalidRequestError, match="missing: 'Day'"):
        instance.create_adapter(
            "a", str(tmp_path / name), "t", columns=columns, constants=CONSTANTS
        )


def test_a_field_that_was_added_needs_its_column_only_if_it_is_mapped(
    instance: Instance, tmp_path: Path
) -> None:
    instance.table("t").add_field("more", "LongType", default=7)
    write_csv(tmp_path / "a.csv")
    source = str(tmp_path / "a.csv")
    with pytest.raises(InvalidRequestError, match="missing: 'More'"):
        instance.create_adapter(
            "a", source, "t", columns={**COLUMNS, "more": "More"}, constants=CONSTANTS
        )
    instance.create_adapter("a", source, "t", columns=COLUMNS, constants=CONSTANTS)
    instance.run_adapter("a")
    assert [row["more"] for row in instance.table("t").query().to_pylist()] == [7, 7]
    # A table and a database may lack the columns of added fields only.
    orders = instance.create_table("orders", {"rowKeyFields": SCHEMA["rowKeyFields"]})
    orders.ingest(pa.table({"shop": ["us"], "id": [3]}))
    instance.table("t").drop_field("price")
    instance.table("t").drop_field("day")
    with pytest.raises(InvalidRequestError, match="'orders' has no field 'More'"):
        instance.create_adapter("b", "table:orders", "t", columns={"more": "More"})
    instance.create_adapter("b", "table:orders", "t", constants={"shop": "eu"})
    instance.run_adapter("b")
    assert instance.table("t").query(keys=[["eu", 3]]).to_pylist()[0]["more"] == 7


@pytest.mark.parametrize(
    ("columns", "constants", "reason"),
    [
        ({"ids": "order_id"}, {}, "the sink has no field 'ids' .*did you mean id"),
        ({"id": "day"}, CONSTANTS, "fields 'id', 'day' are all read from column 'day'"),
        (COLUMNS, {"shop": "eu", "day": "soon"}, r"constant of field 'day' \(DateType\): "),
        ({}, {"shop": "eu", "id": "1"}, "all row keys are constants: shop, id"),
        ({"id": "shop"}, {"shop": "eu"}, "row 1: field 'shop' .LongType.: "),
    ],
)
def test_a_wrong_mapping_is_refused_at_the_creation(
    instance: Instance,
    tmp_path: Path,
    columns: dict[str, str],
    constants: dict[str, str],
    reason: str,
) -> None:
    write_csv(tmp_path / "a.csv")
    with pytest.raises(InvalidRequestError, match=reason):
        instance.create_adapter(
            "a", str(tmp_path / "a.csv"), "t", columns=columns, constants=constants
        )
    assert instance.adapters() == []


def test_a_mapping_has_few_fields() -> None:
    with pytest.raises(InvalidRequestError, match="10,001 mapped fields"):
        ColumnMapping({str(n): "x" for n in range(10_001)})
