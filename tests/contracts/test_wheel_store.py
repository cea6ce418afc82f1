"""Contract of the stores of users' wheels."""

from pathlib import Path

import pytest

from sleeper.aws.config_bucket import CodeObjects
from sleeper.errors import NotFoundError
from sleeper.local.folder import CodeFolder
from sleeper.storage.bucket import open_bucket
from sleeper.user_code.registry import WheelStore


@pytest.fixture(params=["local", "s3", "simulated"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> WheelStore:
    if request.param == "local":
        return CodeFolder(tmp_path / "code")
    fixture = "simulated_bucket" if request.param == "simulated" else "data_bucket"
    bucket = open_bucket(request.getfixturevalue(fixture))
    bucket.put("code/notes.txt", b"no wheel")
    bucket.put("code/folder/c-1.whl", b"not here")
    return CodeObjects(bucket)


def test_wheels_are_listed_by_name_and_read(store: WheelStore) -> None:
    assert list(store.list()) == []
    store.write("b-1.whl", b"b")
    store.write("a-1.whl", b"a")
    assert [item.file_name for item in store.list()] == ["a-1.whl", "b-1.whl"]
    assert store.read("b-1.whl") == b"b"
    with pytest.raises(NotFoundError, match=r"c-1\.whl"):
        store.read("c-1.whl")


def test_changed_content_has_another_tag(store: WheelStore) -> None:
    store.write("a-1.whl", b"first")
    previous = list(store.list())
    assert list(store.list()) == previous
    store.write("a-1.whl", b"other")
    assert [item.file_name for item in store.list()] == ["a-1.whl"]
    assert list(store.list()) != previous


def test_deleting_a_wheel_is_idempotent(store: WheelStore) -> None:
    store.write("a-1.whl", b"a")
    store.delete("a-1.whl")
    store.delete("a-1.whl")
    assert list(store.list()) == []
