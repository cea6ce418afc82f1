"""Folders of properties, right and wrong."""

from pathlib import Path

import pytest

from sleeper.errors import InvalidRequestError
from sleeper.properties.instance import ID, INGEST_TASKS_MAX, TAGS_OF_RESOURCES, VPC
from sleeper.wiring.instance_folder import InstanceFolder, read_instance_folder

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
    assert dict(folder.properties.get(TAGS_OF_RESOURCES)) == {"owner": "you", "project": "p"}
    one, two = folder.tables
    assert (one.name, two.name) == ("one", "other")
    assert one.settings == {"sleeper.table.online": "false"}
    assert one.split_points == "7\n9\n"
    assert two.split_points == ""


def test_overrides_win(tmp_path: Path) -> None:
    folder = _read(tmp_path, {ID.name: "b", VPC.name: "vpc-1"})
    assert folder.properties.get(ID) == "b"
    assert folder.properties.get(VPC) == "vpc-1"


def test_what_an_earlier_deployment_wrote_down_is_left_out(tmp_path: Path) -> None:
    text = "sleeper.id=a\nsleeper.config.bucket=old\nsleeper.region=eu-west-2\n"
    folder = _read(tmp_path, instance_properties=text)
    assert "sleeper.config.bucket" not in folder.properties.values
    assert folder.properties.values["sleeper.region"] == "eu-west-2"


def test_no_file_is_needed_if_the_id_is_given() -> None:
    folder = read_instance_folder(None, {ID.name: "a"})
    assert folder.properties.get(INGEST_TASKS_MAX) == 200
    assert folder.tables == ()


@pytest.mark.parametrize(
    ("file", "text", "named"),
    [
        ("instance_properties", "sleeper.id=a\nsleeper.ide=b", "instance.properties.*sleeper.ide"),
        ("instance_properties", "", "sleeper.id"),
        ("tags_properties", "a=b,c", "tags.properties.*'a' has a comma"),
        ("tables__one__schema_json", "{", "tables/one: "),
        ("tables__one__splits_txt", "7\nx\n", "tables/one: split points, line 2: 'x'"),
        ("tables__one__splits_txt", "9\n7\n", "tables/one: "),
        ("tables__one__table_properties", "sleeper.table.onlin=1", "tables/one: .*onlin"),
        ("tables__one__table_properties", "sleeper.table.id=00000001", "sleeper.table.id"),
        ("tables__one__table_properties", "sleeper.table.filters=ageOff(x,1)", "'?x'?"),
        ("tables__one__table_properties", "sleeper.table.splits.file=no.txt", "no.txt"),
    ],
)
def test_what_is_wrong_is_named_with_its_file(
    tmp_path: Path, file: str, text: str, named: str
) -> None:
    with pytest.raises(InvalidRequestError, match=named):
        _read(tmp_path, **{file: text}).properties.get(ID)
