"""The transaction that changes a schema: versions, ids, running jobs, retries."""

import pytest

from sleeper.partitions.partition import tree_from_split_points
from sleeper.processing.field_changes import AddField, DropField, RenameField, WidenField
from sleeper.schema.model import Field, PrimitiveType, Schema, schema_to_json
from sleeper.statestore.transactions.change_schema import ChangeSchema
from sleeper.statestore.transactions.table_definition import InitialiseTable
from sleeper.statestore.transactions.transaction import Status
from tests.tables.state_table import StateTable

LONG = PrimitiveType.LONG
SCHEMA = Schema((Field("k", LONG),), (), (Field("time", LONG), Field("v", PrimitiveType.INT)))


@pytest.fixture
def table(tmp_path):
    table = StateTable(tmp_path, "embedded")
    tree = tuple(tree_from_split_points(SCHEMA, []))
    processing = '{"filters":"ageOff(time,1000)"}'
    assert table.commit(InitialiseTable(schema_to_json(SCHEMA), tree, processing)).number == 1
    return table


def names(schema: Schema) -> list[str]:
    return [each.name for each in schema.fields]


def test_each_version_has_its_schema_and_knows_the_earlier_ones(table):
    table.ingest("a")
    added = ChangeSchema((AddField(Field("new", LONG)), RenameField("v", "w")))
    assert table.commit(added).number == 3
    table.ingest("b")
    assert table.commit(ChangeSchema((DropField("new"),))).number == 5
    expected = {1: ["k", "time", "v"], 2: ["k", "time", "v"], 5: ["k", "time", "w"]}
    expected |= {number: ["k", "time", "w", "new"] for number in (3, 4)}
    for version, fields in expected.items():
        with table.store.reading(version) as state:
            assert names(state.schema) == fields
            assert state.schema.version in (1, 3, 5)
    with table.store.reading() as state:
        assert [each.version for each in state.schema.earlier] == [1, 3]
        assert state.schema.at(3) == state.schema_at(4)


def test_the_processing_gets_the_new_name_in_the_same_transaction(table):
    assert table.commit(ChangeSchema((RenameField("time", "at"),))).number == 2
    with table.store.reading() as state:
        assert state.processing.filters[0].field == "at"
    with table.store.reading(1) as state:
        assert state.processing.filters[0].field == "time"


def test_an_id_is_not_used_again_after_its_field_was_dropped(table):
    table.commit(ChangeSchema((AddField(Field("x", LONG)),)))
    table.commit(ChangeSchema((DropField("x"),)))
    table.commit(ChangeSchema((AddField(Field("x", PrimitiveType.STRING)),)))
    with table.store.reading() as state:
        assert state.schema.field("x").id == 5


def test_running_jobs_lose_their_files(table):
    table.ingest("a")
    table.assign("job", "a")
    table.commit(ChangeSchema((WidenField("v", LONG),)))
    with table.store.reading() as state:
        assert not list(state.jobs.assigned())
        assert not any(reference.job_id for reference in state.files.references())


def test_a_refused_change_changes_nothing_even_if_others_could_be_made(table):
    outcome = table.commit(ChangeSchema((AddField(Field("x", LONG)), DropField("time"))))
    assert outcome.refused
    assert "filter ageOff(time) needs it" in outcome.reason
    with table.store.reading() as state:
        assert state.number == 1


def test_a_repeated_change_is_already_done(table):
    change = ChangeSchema((AddField(Field("x", LONG)),), id="mine")
    assert table.commit(change).number == 2
    outcome = table.commit(change)
    assert (outcome.status, outcome.number) == (Status.ALREADY_DONE, 2)
    assert table.commit(ChangeSchema((DropField("x"),), id="mine")).refused


def test_a_schema_with_a_default_that_does_not_fit_is_refused(tmp_path):
    table = StateTable(tmp_path, "embedded")
    text = schema_to_json(SCHEMA).replace('"IntType"', '"IntType","default":"x"')
    outcome = table.commit(InitialiseTable(text, tuple(tree_from_split_points(SCHEMA, []))))
    assert "default 'x' does not fit IntType" in outcome.reason
