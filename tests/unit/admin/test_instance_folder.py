"""Reading of valid and invalid property folders."""

from pathlib import Path

import pytest

from sleeper.admin.instance_folder import InstanceFolder, read_instance_folder
from sleeper.errors import InvalidRequestError
from sleeper.properties.instance import (
    ACCOUNT,
    ID,
    INGEST_TASKS_MAX,
    REGION,
    RESOURCE_TAGS,
    SUBNETS,
    VPC,
)
from sleeper.properties.values import gchq_names

SCHEMA = '{"rowKeyFields":[{"name":"key","type":"LongType"}]}'
FILES = {
    "instance.properties": "sleeper.id=a\nsleeper.tags=owner,me\n",
    "tags.properties": "project=p\nowner=you\n",
    "tables/one/schema.json": SCHEMA,
    "tables/one/table.properties": "sleeper.table.online=false\n",
    "tables/one/splits.txt": "7\n9\n",
    "tables/two/schema.json": SCHEMA,
    "tables/two/table.properties": "sleeper.table.name=other\n",
    "tables/a-file-beside": "",
}


def _read(folder: Path, /, overrides: dict[str, str] | None = None, **files: str) -> InstanceFolder:
    changed = {name.replace("__", "/").replace("_", "."): text for name, text in files.items()}
    for name, text in {**FILES, **changed}.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return read_instance_folder(folder / "instance.properties", overrides)


def test_properties_tags_and_tables_are_read(tmp_path: Path) -> None:
    folder = _read(tmp_path)
    assert folder.properties.get(ID) == "a"
    assert dict(folder.properties.get(RESOURCE_TAGS)) == {"owner": "you", "project": "p"}
    one, two = folder.tables
    assert (one.name, two.name) == ("one", "other")
    assert one.settings == {"sleeper.table.online": "false"}
    assert one.split_points == "7\n9\n"
    assert two.split_points == ""


def test_overrides_take_precedence(tmp_path: Path) -> None:
    folder = _read(tmp_path, {ID.name: "b", VPC.name: "vpc-1"})
    assert folder.properties.get(ID) == "b"
    assert folder.properties.get(VPC) == "vpc-1"


def test_properties_of_an_earlier_deployment_are_removed(tmp_path: Path) -> None:
    text = "sleeper.id=a\nsleeper.config.bucket=old\nsleeper.region=eu-west-2\n"
    folder = _read(tmp_path, instance_properties=text)
    assert "sleeper.config.bucket" not in folder.properties.values
    assert folder.properties.values["sleeper.region"] == "eu-west-2"


def test_file_is_optional_if_the_id_is_given() -> None:
    folder = read_instance_folder(None, {ID.name: "a"})
    assert folder.properties.get(INGEST_TASKS_MAX) == 200
    assert folder.tables == ()


@pytest.mark.parametrize(
    ("file", "text", "expected_name"),
    [
        ("instance_properties", "sleeper.id=a\nsleeper.ide=b", "instance.properties.*sleeper.ide"),
        ("instance_properties", "", "sleeper.id"),
        ("tags_properties", "a=b,c", "tags.properties.*'a' has a comma"),
        ("tables__one__schema_json", "{", "tables/one: "),
        ("tables__one__splits_txt", "7\nx\n", "tables/one: split points, line 2: .*'x'"),
        ("tables__one__splits_txt", "9\n7\n", "tables/one: "),
        ("tables__one__table_properties", "sleeper.table.onlin=1", "tables/one: .*onlin"),
        ("tables__one__table_properties", "sleeper.table.filters=ageOff(x,1)", "'?x'?"),
        ("tables__one__table_properties", "sleeper.table.splits.file=no.txt", "no.txt"),
    ],
)
def test_invalid_files_are_named(tmp_path: Path, file: str, text: str, expected_name: str) -> None:
    with pytest.raises(InvalidRequestError, match=expected_name):
        _read(tmp_path, **{file: text}).properties.get(ID)


def test_folder_of_a_deployed_gchq_sleeper_instance_is_read(tmp_path: Path) -> None:
    """Such a folder has all properties of its deployment, and table ids."""
    output = [
        f"{name}=written"
        for name, java_name in gchq_names().items()
        if java_name == "deployment" and name not in (ACCOUNT.name, REGION.name)
    ]
    own = "sleeper.id=a\nsleeper.ingest.tracker.enabled=true\nsleeper.account=123456789012\n"
    folder = _read(
        tmp_path,
        instance_properties=own + "\n".join(output),
        tables__one__table_properties="sleeper.table.id=5e6f7a8b\nsleeper.table.data.engine=JAVA\n",
    )
    remaining = {"sleeper.id", "sleeper.ingest.tracker.enabled", ACCOUNT.name, RESOURCE_TAGS.name}
    assert set(folder.properties.values) == remaining
    assert "sleeper.table.id" not in folder.tables[0].settings
    assert folder.warnings == (
        "property sleeper.ingest.tracker.enabled means nothing here, and is ignored",
        "table one: property sleeper.table.data.engine means nothing here, and is ignored",
    )


def test_network_of_an_earlier_deployment_is_removed(
    tmp_path: Path,
) -> None:
    """Otherwise the next deployment would delete the network of running tasks."""
    content = "sleeper.id=a\nsleeper.vpc=vpc-1\nsleeper.subnets=s-1\nsleeper.network.vpc.created="
    assert _read(tmp_path, instance_properties=content + "vpc-1\n").properties.get(VPC) is None
    arguments = _read(tmp_path, instance_properties=content + "vpc-0\n").properties
    assert (arguments.get(VPC), arguments.get(SUBNETS)) == ("vpc-1", ("s-1",))
