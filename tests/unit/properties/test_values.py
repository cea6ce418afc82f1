import json
import logging
from pathlib import Path

import pytest

from sleeper import __version__
from sleeper.errors import InvalidRequestError
from sleeper.properties import instance, table
from sleeper.properties.declaration import INSTANCE_PROPERTIES, TABLE_PROPERTIES
from sleeper.properties.docs import properties_page
from sleeper.properties.values import (
    InstanceProperties,
    check_set_by_user,
    declared,
    instance_properties,
    instance_properties_from_text,
    table_properties,
    table_properties_from_text,
)
from sleeper.schema.model import schema_from_json

SCHEMA = '{"rowKeyFields":[{"name":"id","type":"StringType"}],"sortKeyFields":[],"valueFields":[]}'
DOCS = Path(__file__).parents[3] / "docs" / "properties.md"


def make_instance_properties(**values: str) -> InstanceProperties:
    return instance_properties({"sleeper.id": "a"} | values)


def test_an_unset_property_has_its_default() -> None:
    assert make_instance_properties().get(instance.COLLECTION_PERIOD_MINUTES) == 15
    assert make_instance_properties().get(instance.MERGE_FILES_MAX) == 64
    assert make_instance_properties().get(instance.VPC) is None


def test_a_table_property_falls_back_to_the_instance_and_then_to_the_default() -> None:
    plain, changed_values = (
        make_instance_properties(),
        make_instance_properties(**{"sleeper.default.table.gc.delay.minutes": "3"}),
    )
    own = {"sleeper.table.gc.delay.minutes": "7"}
    assert table_properties({}, plain).get(table.COLLECTION_DELAY_MINUTES) == 10
    assert table_properties({}, changed_values).get(table.COLLECTION_DELAY_MINUTES) == 3
    assert table_properties(own, changed_values).get(table.COLLECTION_DELAY_MINUTES) == 7
    unset = table_properties(own, changed_values).with_values(
        {"sleeper.table.gc.delay.minutes": ""}
    )
    assert unset.get(table.COLLECTION_DELAY_MINUTES) == 3


def test_a_table_reads_instance_properties_through() -> None:
    changed_values = make_instance_properties(**{"sleeper.merge.files.max": "9"})
    assert table_properties({}, changed_values).get(instance.MERGE_FILES_MAX) == 9


def test_a_required_property_that_is_unset_is_refused_when_read() -> None:
    with pytest.raises(InvalidRequestError, match=r"sleeper\.table\.schema is not set"):
        table_properties({}, make_instance_properties()).get(table.SCHEMA)


def test_the_schema_travels_in_the_properties_text() -> None:
    properties = table_properties({"sleeper.table.schema": SCHEMA}, make_instance_properties())
    again = table_properties_from_text(properties.to_text(), make_instance_properties())
    assert again.get(table.SCHEMA) == schema_from_json(SCHEMA)
    assert json.loads(again.values["sleeper.table.schema"]) == json.loads(SCHEMA)


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        (
            "sleeper.gc.period.minutes",
            "often",
            r"sleeper\.gc\.period\.minutes cannot be 'often': expected an integer from 1 to",
        ),
        ("sleeper.id", "twenty-one-characters", r"sleeper\.id cannot be 'twenty-one-characters'"),
        (
            "sleeper.gc.periods.minutes",
            "1",
            r"not an instance property; did you mean sleeper\.gc\.period\.minutes\?",
        ),
        ("sleeper.table.name", "t", "is not an instance property"),
        ("zzz", "1", "'zzz' is not an instance property$"),
        (
            "sleeper.ingest.keepalive.period.seconds",
            "900",
            r"must be less than sleeper\.ingest\.queue\.visibility\.timeout\.seconds, which is 900",
        ),
        ("sleeper.compaction.lease.seconds", "2700", "must be longer than the 3 attempts"),
    ],
)
def test_refuses_an_instance_property(name: str, value: str, message: str) -> None:
    with pytest.raises(InvalidRequestError, match=message):
        make_instance_properties(**{name: value})


def test_an_invalid_schema_is_refused_with_its_reason() -> None:
    with pytest.raises(
        InvalidRequestError, match=r"sleeper\.table\.schema: schema: .rowKeyFields. is missing"
    ):
        table_properties({"sleeper.table.schema": "{}"}, make_instance_properties())


def test_a_property_without_effect_is_kept_with_a_warning() -> None:
    properties = make_instance_properties(**{"sleeper.athena.handler.classes": "x"})
    assert properties.warnings() == (
        "property sleeper.athena.handler.classes means nothing here, and is ignored",
    )
    assert "athena" in properties.to_text()
    table_values = table_properties({"sleeper.table.data.engine": "JAVA"}, properties)
    assert len(table_values.warnings()) == 1


@pytest.mark.parametrize("name", ["sleeper.ingest.task.memroy.mb", "sleeper.gc.period", "x"])
def test_a_mistyped_name_is_not_accepted_as_one_of_gchq_sleeper(name: str) -> None:
    with pytest.raises(InvalidRequestError, match="is not an instance property"):
        make_instance_properties(**{name: "1"})


def test_the_properties_of_the_format_page_have_its_defaults() -> None:
    text = """
    sleeper.id=my-instance
    sleeper.tags=name,abc,project,test
    sleeper.ingest.source.bucket=one,two
    """
    properties = instance_properties_from_text(text)
    assert properties.get(instance.RESOURCE_TAGS) == (("name", "abc"), ("project", "test"))
    assert properties.get(instance.INGEST_SOURCE_BUCKETS) == ("one", "two")
    table_values = table_properties({}, properties)
    assert table_values.get(table.SPLIT_THRESHOLD_ROWS) == 1_000_000_000
    assert table_values.get(table.BATCHER_JOB_SIZE_MAX) == 5 * 1024**3
    assert table_values.get(table.COMPACTION_STRATEGY) == "SizeRatioCompactionStrategy"


def test_every_default_is_a_value_of_its_kind() -> None:
    for declaration in (*INSTANCE_PROPERTIES, *TABLE_PROPERTIES):
        if declaration.default is not None and declaration.default != ():
            text = declaration.kind.format(declaration.default)
            assert declaration.parse(text) == declaration.default, declaration.name


def test_a_name_is_looked_up_over_both_scopes() -> None:
    assert declared("sleeper.table.gc.delay.minutes") is table.COLLECTION_DELAY_MINUTES
    with pytest.raises(InvalidRequestError, match=r"did you mean sleeper\.merge\.files\.max\?"):
        declared("sleeper.merge.file.max")


def test_users_do_not_set_what_the_system_sets() -> None:
    with pytest.raises(InvalidRequestError, match=r"sleeper\.table\.id is set by the system"):
        check_set_by_user({"sleeper.table.id": "00000000"})


def test_the_committed_page_is_what_the_declarations_generate() -> None:
    assert DOCS.read_text() == properties_page(), (
        "stale: run python -m sleeper.properties.docs > docs/properties.md"
    )


NEWER = "sleeper.id=a\nsleeper.version=99.1.0\nsleeper.future=1\n"


def test_a_client_ignores_properties_of_an_instance_that_a_newer_version_deployed(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logging.getLogger("sleeper"), "propagate", True)
    # A process warns of each version once, and other tests have the other one.
    newer = NEWER.replace("99.1.0", "99.3.0")
    properties = instance_properties_from_text(newer)
    text = f"sleeper.table.name=t\nsleeper.table.schema={SCHEMA}\nsleeper.table.future=2\n"
    of_table = table_properties_from_text(text, properties)
    instance_properties_from_text(newer)
    warned = [record.getMessage() for record in caplog.records]
    assert [("sleeper.future" in each, "99.3.0" in each) for each in warned] == [
        (True, True),
        (False, True),
    ]
    # Changes of other properties keep them.
    changed = properties.with_values({"sleeper.gc.batch.size": "7"})
    assert "sleeper.future=1" in changed.to_text()
    assert "sleeper.table.future=2" in of_table.with_values({}).to_text()


@pytest.mark.parametrize("version", ["", "0.1.0", __version__, "next"])
def test_other_unknown_properties_of_a_stored_file_are_refused(version: str) -> None:
    text = NEWER.replace("99.1.0", version)
    with pytest.raises(InvalidRequestError, match=r"'sleeper\.future' is not an instance prop"):
        instance_properties_from_text(text)
    known = instance_properties_from_text(text.replace("sleeper.future=1\n", ""))
    table_text = f"sleeper.table.schema={SCHEMA}\nsleeper.table.future=2\n"
    with pytest.raises(InvalidRequestError, match=r"'sleeper\.table\.future' is not a table"):
        table_properties_from_text(table_text, known)


def test_what_users_set_is_checked_in_an_instance_of_a_newer_version_too() -> None:
    properties = instance_properties_from_text(NEWER)
    with pytest.raises(InvalidRequestError, match=r"'sleeper\.gc\.batch\.sise' is not an instance"):
        properties.with_values({"sleeper.gc.batch.sise": "7"})
    with pytest.raises(InvalidRequestError, match=r"'sleeper\.table\.onlin' is not a table"):
        table_properties({}, properties).with_values({"sleeper.table.onlin": "false"})
    with pytest.raises(InvalidRequestError, match=r"'sleeper\.future' is not an instance"):
        instance_properties({"sleeper.version": "99.1.0", "sleeper.future": "1"})
