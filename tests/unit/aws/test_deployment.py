"""Tests of properties and tables in a deployment."""

import sys
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path

import boto3
import pytest
from moto import mock_aws

from sleeper.admin.instance_folder import TableDefinition
from sleeper.aws.deployment import (
    check_kept_buckets,
    define_table,
    deployed_properties,
    protect_tables,
)
from sleeper.errors import InvalidRequestError
from sleeper.instance import Instance
from sleeper.opening import create_instance, open_instance
from sleeper.properties.table import (
    ITERATOR_CLASS_NAME,
    ITERATOR_CONFIG,
    ONLINE,
    SPLIT_THRESHOLD_ROWS,
)

TASKS = "sleeper.ingest.max.concurrent.tasks"
GC = "sleeper.gc.period.minutes"
URL = "sleeper.ingest.job.queue.url"
THRESHOLD = SPLIT_THRESHOLD_ROWS.name
SCHEMA = '{"rowKeyFields":[{"name":"key","type":"LongType"}]}'
TABLE = TableDefinition("events", SCHEMA, {THRESHOLD: "5000"}, "10\n20\n")


def _deploy(
    deployed_values: Mapping[str, str], previous: Mapping[str, str], current: Mapping[str, str]
) -> Mapping[str, str]:
    names = {"sleeper.id": "a"}
    return deployed_properties(
        deployed_values, {**names, **previous}, {**names, **current}, {URL: "new"}
    ).values


def test_an_upgrade_that_renames_the_bucket_of_data_is_refused() -> None:
    before = {"sleeper.config.bucket": "sleeper-a-config-1", "sleeper.data.bucket": "a"}
    check_kept_buckets({}, before)
    check_kept_buckets(before, {**before, URL: "new"})
    for name in before:
        with pytest.raises(
            InvalidRequestError, match=r"with the former sleeper\.bucket\.names\.region"
        ):
            check_kept_buckets(before, {**before, name: "b"})


def test_a_first_deployment_writes_the_folder_s_and_the_deployed_properties() -> None:
    output = deployed_properties({}, {}, {"sleeper.id": "a", TASKS: "3"}, {URL: "u"})
    assert output.values == {"sleeper.id": "a", TASKS: "3", URL: "u"}


def test_values_set_from_the_command_line_are_kept() -> None:
    deployed_values = {"sleeper.id": "a", TASKS: "3", GC: "99"}
    assert _deploy(deployed_values, {TASKS: "3"}, {TASKS: "3"})[GC] == "99"


def test_a_value_unchanged_in_the_folder_is_not_reset() -> None:
    assert _deploy({"sleeper.id": "a", TASKS: "50"}, {TASKS: "3"}, {TASKS: "3"})[TASKS] == "50"


def test_values_changed_in_the_folder_are_set() -> None:
    assert _deploy({"sleeper.id": "a", TASKS: "50"}, {TASKS: "3"}, {TASKS: "4"})[TASKS] == "4"


def test_values_removed_from_the_folder_are_unset() -> None:
    assert TASKS not in _deploy({"sleeper.id": "a", TASKS: "3"}, {TASKS: "3"}, {})


def test_deployed_properties_are_those_of_the_latest_deployment_only() -> None:
    deployed_values = {"sleeper.id": "a", URL: "old", "sleeper.query.queue.url": "gone"}
    assert _deploy(deployed_values, {}, {}) == {"sleeper.id": "a", URL: "new"}


def test_a_rollback_to_an_older_version_removes_what_only_the_newer_one_knows() -> None:
    deployed_values = {"sleeper.id": "a", "sleeper.version": "99.2.0", "sleeper.future": "1"}
    assert _deploy({**deployed_values, TASKS: "9"}, {}, {}) == {
        "sleeper.id": "a",
        TASKS: "9",
        URL: "new",
    }


ENDPOINTS = "sleeper.network.interface.endpoints"
NETWORK = {"sleeper.id": "a", "sleeper.network.vpc.created": "vpc-1"}


@pytest.mark.parametrize("recorded", [{}, {ENDPOINTS: "true"}])
def test_a_new_default_does_not_change_the_network_of_an_instance(
    recorded: Mapping[str, str],
) -> None:
    """Release 0.2.0 records nothing, and its default is true."""
    folder, new = {"sleeper.id": "a"}, {**NETWORK, ENDPOINTS: "false"}
    with pytest.raises(InvalidRequestError, match=f"property {ENDPOINTS} is not set, and the net"):
        deployed_properties({**NETWORK, **recorded}, folder, folder, new)
    for chosen in ("true", "false"):
        after, deployed = {**folder, ENDPOINTS: chosen}, {**NETWORK, ENDPOINTS: chosen}
        values = deployed_properties({**NETWORK, **recorded}, folder, after, deployed).values
        assert values[ENDPOINTS] == chosen
    # A first deployment, a repeated one, and one into a network of the user.
    assert deployed_properties({}, {}, folder, new).values[ENDPOINTS] == "false"
    assert deployed_properties(new, folder, folder, new).values[ENDPOINTS] == "false"
    assert ENDPOINTS not in deployed_properties({}, {}, folder, {}).values


def test_a_repeated_deployment_changes_nothing() -> None:
    once = _deploy({"sleeper.id": "a", GC: "99"}, {TASKS: "3"}, {TASKS: "4"})
    assert _deploy(once, {TASKS: "3"}, {TASKS: "4"}) == once


@pytest.fixture
def instance(tmp_path: Path) -> Iterator[Instance]:
    create_instance(tmp_path / "instance")
    opened_instance = open_instance(tmp_path / "instance")
    yield opened_instance
    opened_instance.close()


def test_a_missing_table_is_created(instance: Instance) -> None:
    define_table(instance, TABLE, None)
    table = instance.table("events")
    assert table.properties().get(SPLIT_THRESHOLD_ROWS) == 5000
    with table.state.reading() as state:
        assert len(list(state.partitions.leaves())) == 3


def test_an_existing_table_is_unchanged_by_its_first_deployment(instance: Instance) -> None:
    define_table(instance, TABLE, None)
    ref = instance.table("events").ref
    define_table(instance, replace(TABLE, settings={THRESHOLD: "1"}), None)
    assert instance.table("events").ref == ref
    assert instance.table("events").properties().get(SPLIT_THRESHOLD_ROWS) == 5000


def test_changed_properties_of_a_table_are_set(instance: Instance) -> None:
    define_table(instance, TABLE, None)
    define_table(instance, replace(TABLE, settings={ONLINE.name: "false"}), TABLE)
    table = instance.table("events")
    assert not table.ref.online
    assert table.properties().get(SPLIT_THRESHOLD_ROWS) == SPLIT_THRESHOLD_ROWS.default


def test_a_schema_cannot_change(instance: Instance) -> None:
    define_table(instance, TABLE, None)
    changed = replace(TABLE, schema=SCHEMA.replace("LongType", "StringType"))
    with pytest.raises(InvalidRequestError, match="'events': the schema"):
        define_table(instance, changed, TABLE)


def test_an_existing_table_with_another_schema_fails_its_first_deployment(
    instance: Instance,
) -> None:
    define_table(instance, TABLE, None)
    changed = replace(TABLE, schema=SCHEMA.replace("LongType", "StringType"))
    with pytest.raises(InvalidRequestError, match="'events': the schema"):
        define_table(instance, changed, None)


def test_a_refused_schema_change_can_be_rolled_back(instance: Instance) -> None:
    define_table(instance, TABLE, None)
    refusals = replace(TABLE, schema=SCHEMA.replace("LongType", "StringType"))
    define_table(instance, TABLE, refusals)


def test_a_table_with_an_iterator_is_created_without_arrow(
    instance: Instance, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    monkeypatch.delitem(sys.modules, "sleeper.datafiles.merge.steps", raising=False)
    monkeypatch.delitem(sys.modules, "sleeper.datafiles.arrow", raising=False)
    iterator = {ITERATOR_CLASS_NAME.name: "AgeOffByField", ITERATOR_CONFIG.name: "time,1000"}
    define_table(instance, replace(TABLE, settings=iterator), None)
    assert instance.table("events").properties().get(ITERATOR_CLASS_NAME) == "AgeOffByField"
    unknown = {ITERATOR_CLASS_NAME.name: "NoSuch"}
    with pytest.raises(InvalidRequestError, match="no iterator 'NoSuch'"):
        define_table(instance, replace(TABLE, name="other", settings=unknown), None)


@pytest.mark.parametrize("protect", [True, False])
def test_a_deployment_sets_the_deletion_protection_of_tables(
    protect: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "testing")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "testing")
    with mock_aws():
        dynamo = boto3.client("dynamodb", region_name="eu-west-2")
        for name, is_protected in (("one", True), ("two", False)):
            dynamo.create_table(
                TableName=name,
                KeySchema=[{"AttributeName": "k", "KeyType": "HASH"}],
                AttributeDefinitions=[{"AttributeName": "k", "AttributeType": "S"}],
                BillingMode="PAY_PER_REQUEST",
                DeletionProtectionEnabled=is_protected,
            )
        protect_tables(dynamo, ["one", "two"], protect)
        result = [dynamo.describe_table(TableName=name)["Table"] for name in ("one", "two")]
        assert [table["DeletionProtectionEnabled"] for table in result] == [protect, protect]
