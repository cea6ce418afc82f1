"""The temporary root of a user."""

import os
import tempfile
from pathlib import Path

import pytest

import sleeper
from sleeper.errors import UnavailableError
from sleeper.temporary import temporary_folder

ROOT = f"sleeper-{os.getuid()}"


@pytest.fixture(autouse=True)
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


def test_folders_are_of_this_user_alone(tmp_path: Path) -> None:
    made = temporary_folder("code")
    assert made == temporary_folder("code") == tmp_path / ROOT / "code"
    assert {each.stat().st_mode & 0o777 for each in (made, made.parent)} == {0o700}
    assert temporary_folder("spill", tmp_path / "a" / "b") == tmp_path / "a" / "b" / ROOT / "spill"


@pytest.mark.parametrize("below", [[], ["code"]], ids=["root", "folder"])
@pytest.mark.parametrize("kind", ["open", "link", "file"])
def test_other_folders_are_refused(tmp_path: Path, below: list[str], kind: str) -> None:
    path = temporary_folder("other").parent if below else tmp_path / ROOT
    path = path.joinpath(*below)
    if kind == "open":
        path.mkdir(exist_ok=True)
        path.chmod(0o755)
    elif kind == "link":
        (tmp_path / "elsewhere").mkdir(mode=0o700)
        path.symlink_to(tmp_path / "elsewhere")
    else:
        path.write_text("")
    with pytest.raises(UnavailableError, match=str(path)):
        temporary_folder("code")


def test_a_folder_of_another_user_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    folder = temporary_folder("code")
    uid = os.getuid()
    (folder.parent.parent / f"sleeper-{uid + 1}").symlink_to(folder.parent)
    real = folder.parent.rename(folder.parent.parent / f"sleeper-{uid + 2}")
    monkeypatch.setattr(os, "getuid", lambda: uid + 2)
    with pytest.raises(UnavailableError, match=str(real)):
        temporary_folder("code")


@pytest.mark.parametrize("is_chosen", [False, True])
def test_a_read_only_instance_uses_no_folder_of_others(tmp_path: Path, is_chosen: bool) -> None:
    folder, scratch = tmp_path / "instance", tmp_path / "scratch"
    with sleeper.create_instance(folder) as instance:
        if is_chosen:
            instance.set_properties({"sleeper.spill.directory": str(scratch)})
    parent = scratch if is_chosen else tmp_path
    planted = parent / ROOT
    planted.mkdir(parents=True, mode=0o700)
    planted.chmod(0o777)
    with pytest.raises(UnavailableError, match=f"{planted} is not a folder of this user alone"):
        sleeper.open_instance(folder, read_only=True)
    planted.chmod(0o700)
    with sleeper.open_instance(folder, read_only=True) as instance:
        assert instance._ports.storage.spill_folder().is_relative_to(planted / "spill")
