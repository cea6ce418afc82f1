"""Contract of the property files of tables and of the instance."""

from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from sleeper.aws.config_bucket import PropertyFiles
from sleeper.errors import InvalidRequestError, NotFoundError
from sleeper.instance import TablePropertiesStore
from sleeper.local.instance import create_local_instance, open_local_instance
from sleeper.properties.declaration import INSTANCE_PROPERTIES, TABLE_PROPERTIES
from sleeper.properties.instance import ID, QUERY_ROWS_MAX, RESOURCE_TAGS, TRACKER_DAYS
from sleeper.properties.table import NAME, ROW_GROUP_ROWS_MAX, SCHEMA
from sleeper.properties.values import (
    InstanceProperties,
    gchq_names,
    instance_properties,
    instance_properties_from_text,
    table_properties,
)
from sleeper.storage.bucket import Bucket, open_bucket
from sleeper.tables import TableId

TABLE = TableId("0000000a")
ANY_SCHEMA = '{"rowKeyFields":[{"name":"k","type":"IntType"}]}'
UNUSED_OF_INSTANCES = "sleeper.athena.handler.classes"


@dataclass
class Files:
    """The files of an instance, and a function that opens them as another process does."""

    tables: TablePropertiesStore
    instance: Callable[[], InstanceProperties]
    change_instance: Callable[[Mapping[str, str]], InstanceProperties]
    again: Callable[[], "Files"]


@pytest.fixture(params=["local", "s3", "simulated"])
def files(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Files]:
    resources: list[Any] = []

    def open_local() -> Files:
        instance = open_local_instance(tmp_path / "instance")
        resources.append(instance)
        return Files(
            instance.tables.properties, instance.properties, instance.change_properties, open_local
        )

    def open_s3() -> Files:
        fixture = "simulated_bucket" if request.param == "simulated" else "data_bucket"
        bucket: Bucket = request.getfixturevalue(fixture)
        files = PropertyFiles(open_bucket(bucket), bucket.name)
        return Files(files, files.instance, files.change_instance, open_s3)

    if request.param == "local":
        create_local_instance(tmp_path / "instance", "test")
        made = open_local()
    else:
        made = open_s3()
        fixture = "simulated_bucket" if request.param == "simulated" else "data_bucket"
        bucket: Bucket = request.getfixturevalue(fixture)
        store = PropertyFiles(open_bucket(bucket), bucket.name)
        store.write_instance(lambda _: instance_properties({ID.name: "test"}))
    yield made
    for resource in resources:
        resource.close()


def write(files: Files) -> None:
    values = {NAME.name: "a=b: c", ROW_GROUP_ROWS_MAX.name: "5000", SCHEMA.name: ANY_SCHEMA}
    files.tables.write(TABLE, table_properties(values, files.instance()))


def unused_names(prefix: str) -> list[str]:
    """Names of gchq/sleeper's properties that are kept without effect."""
    declaration = {*INSTANCE_PROPERTIES.names(), *TABLE_PROPERTIES.names()}
    return sorted(
        name for name in gchq_names() if name.startswith(prefix) and name not in declaration
    )


def test_written_properties_are_visible_to_others(files: Files) -> None:
    with pytest.raises(NotFoundError, match=f"table-{TABLE}"):
        files.tables.read(TABLE)
    write(files)
    properties = files.again().tables.read(TABLE)
    assert (properties.get(NAME), properties.get(ROW_GROUP_ROWS_MAX)) == ("a=b: c", 5000)


def test_a_change_sets_and_unsets_properties_and_an_invalid_one_changes_nothing(
    files: Files,
) -> None:
    write(files)
    with pytest.raises(InvalidRequestError, match=ROW_GROUP_ROWS_MAX.name):
        files.tables.change(TABLE, {NAME.name: "d", ROW_GROUP_ROWS_MAX.name: "none"})
    assert files.tables.read(TABLE).get(NAME) == "a=b: c"
    current = files.tables.change(TABLE, {NAME.name: "d", ROW_GROUP_ROWS_MAX.name: ""})
    assert current == files.again().tables.read(TABLE)
    assert current.values == {NAME.name: "d", SCHEMA.name: ANY_SCHEMA}
    with pytest.raises(NotFoundError):
        files.tables.change(TableId("0000000b"), {NAME.name: "d"})


def test_concurrent_changes_are_all_kept(files: Files) -> None:
    write(files)
    # Unknown names of gchq/sleeper are kept.
    names = unused_names("sleeper.table.")[:12]
    names_of_instance = unused_names("sleeper.statestore.")[:12]
    assert (len(names), len(names_of_instance)) == (12, 12)

    def change(name: str, name_of_instance: str) -> None:
        other = files.again()
        other.change_instance({name_of_instance: "1"})
        other.tables.change(TABLE, {name: "1"})

    with ThreadPoolExecutor(6) as pool:
        list(pool.map(change, names, names_of_instance))
    current = files.again()
    assert set(names_of_instance) <= current.instance().values.keys()
    assert set(names) <= current.tables.read(TABLE).values.keys()


def test_the_instances_own_properties_change_but_not_its_id(files: Files) -> None:
    assert files.change_instance({QUERY_ROWS_MAX.name: "7"}).get(QUERY_ROWS_MAX) == 7
    assert files.instance().get(QUERY_ROWS_MAX) == 7
    with pytest.raises(InvalidRequestError, match=f"{ID.name} cannot change"):
        files.change_instance({ID.name: "other"})
    with pytest.raises(InvalidRequestError, match=TRACKER_DAYS.name):
        files.change_instance({TRACKER_DAYS.name: "x"})
    assert files.again().instance().values == {ID.name: "test", QUERY_ROWS_MAX.name: "7"}


def test_a_command_s_change_during_a_deployment_is_kept(data_bucket: Bucket) -> None:
    files = PropertyFiles(open_bucket(data_bucket), data_bucket.name)
    files.write_instance(
        lambda _: instance_properties({ID.name: "test", RESOURCE_TAGS.name: "a,1"})
    )
    seen: list[str] = []

    def deploy(text: str) -> InstanceProperties:
        seen.append(text)
        if len(seen) == 1:
            files.change_instance({QUERY_ROWS_MAX.name: "7"})
        return instance_properties_from_text(text).with_values({UNUSED_OF_INSTANCES: "2"})

    files.write_instance(deploy)
    assert len(seen) == 2
    assert files.instance().values == {
        ID.name: "test",
        RESOURCE_TAGS.name: "a,1",
        UNUSED_OF_INSTANCES: "2",
        QUERY_ROWS_MAX.name: "7",
    }


def test_of_two_concurrent_first_deployments_the_second_reads_the_first(
    data_bucket: Bucket,
) -> None:
    files = PropertyFiles(open_bucket(data_bucket), data_bucket.name)
    seen: list[str] = []

    def deploy(text: str) -> InstanceProperties:
        seen.append(text)
        if len(seen) == 1:
            files.write_instance(lambda _: instance_properties({ID.name: "test"}))
        return instance_properties({ID.name: "test", UNUSED_OF_INSTANCES: "2"})

    files.write_instance(deploy)
    assert seen[0] == ""
    assert "sleeper.id=test" in seen[1]
