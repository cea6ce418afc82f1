"""The connector of an instance is made from its properties, and those of its tables."""

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

from sleeper.admin.tables import create_table
from sleeper.athena.properties import (
    ATHENA_HOLD_SECONDS,
    ATHENA_SHOWS_RAW,
    ATHENA_SPILL_BUCKET,
    ATHENA_SPLIT_BYTES,
)
from sleeper.athena.service import athena_connector
from sleeper.errors import InvalidRequestError
from sleeper.ingest.service import ingest_rows
from sleeper.instance import Instance
from sleeper.local.instance import create_local_instance, open_local_instance
from sleeper.properties.instance import SPLITTING_FILES_MAX
from sleeper.properties.table import QUERY_CALLERS
from tests.unit.athena.protocol import Athena, among, text


@pytest.fixture
def instance(tmp_path: Path) -> Iterator[Instance]:
    create_local_instance(tmp_path / "instance", "test")
    opened_instance = open_local_instance(tmp_path / "instance")
    yield opened_instance
    opened_instance.close()


def test_properties_configure_the_connector(instance: Instance):
    instance.change_properties(
        {
            ATHENA_SPILL_BUCKET.name: "spilled",
            ATHENA_HOLD_SECONDS.name: "120",
            ATHENA_SPLIT_BYTES.name: "64M",
            SPLITTING_FILES_MAX.name: "7",
            ATHENA_SHOWS_RAW.name: "false",
        }
    )
    connector = athena_connector(instance)
    assert connector.spill.name == "spilled"
    assert connector.spill.root.url_of("x") == "s3://spilled/x"
    settings = connector.settings
    assert (settings.hold_seconds, settings.sketched_files_max) == (120, 7)
    assert not settings.shows_raw
    assert settings.split_bytes == 64 * 1024**2


def test_an_instance_without_the_stack_names_the_missing_property(instance: Instance):
    with pytest.raises(InvalidRequestError, match=r"sleeper\.athena\.spill\.bucket is not set"):
        athena_connector(instance)


SCHEMA = """{"rowKeyFields":[{"name":"k","type":"LongType"}],
 "valueFields":[{"name":"label","type":"StringType"},{"name":"v","type":"LongType"}]}"""


@pytest.fixture
def athena(instance: Instance) -> Athena:
    """Of a table `t` of ten rows, five of them secret."""
    instance.change_properties({ATHENA_SPILL_BUCKET.name: "spilled"})
    create_table(instance, "t", SCHEMA)
    labels = ["secret", "public"] * 5
    rows = pa.record_batch({"k": list(range(10)), "label": labels, "v": list(range(10))})
    ingest_rows(instance, "t", [rows])
    return Athena(athena_connector(instance))


def set_callers(instance: Instance, callers: object) -> None:
    table_id = instance.tables.index.find("t").id
    instance.tables.properties.change(table_id, {QUERY_CALLERS.name: json.dumps(callers)})


def test_a_table_for_named_callers_is_closed_to_athena(instance: Instance, athena: Athena) -> None:
    splits = athena.splits("t")
    for callers in ({"AROA1": {}}, {"AROA1": {"valueFields": []}, "*": {}}, {}):
        set_callers(instance, callers)
        for ask in (
            lambda: athena.schema("t"),
            lambda: athena.splits("t"),
            lambda: athena.ask(
                "ReadRecordsRequest",
                tableName=athena.name("t"),
                schema=text(pa.schema([("k", pa.int64())])),
                split=splits[0],
                constraints={"summary": {}},
                maxBlockSize="1000",
                maxInlineBlockSize="1000",
            ),
        ):
            with pytest.raises(InvalidRequestError, match="'t' restricts its callers"):
                ask()


def test_restrictions_of_callers_apply_to_athena(instance: Instance, athena: Athena) -> None:
    restriction = {"valueFields": ["v"], "iterator": "RowSecurity", "config": "label,public"}
    set_callers(instance, {"athena": restriction})
    for database in ("sleeper", "sleeper_raw"):
        reader = replace(athena, database=database)
        assert reader.schema("t").names == ["k", "v"]
        assert reader.query("t")["k"].to_pylist() == [1, 3, 5, 7, 9]
        (split,) = reader.splits("t")
        with pytest.raises(InvalidRequestError, match="unknown column 'label'"):
            reader.splits("t", {"label": among(pa.string(), "secret")})
        with pytest.raises(InvalidRequestError, match="unknown column 'label'"):
            reader.read("t", split, {"label": among(pa.string(), "secret")})
