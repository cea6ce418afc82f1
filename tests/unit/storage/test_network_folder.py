"""Network file systems are found by the types of mounts."""

import logging
from pathlib import Path

import pytest
from typer.testing import CliRunner

import sleeper
from sleeper.cli.main import app
from sleeper.storage import network_folder
from sleeper.storage.network_folder import describe_network_folder

_LOCAL = "27 1 8:1 / / rw,relatime - ext4 /dev/sda1 rw"


@pytest.fixture
def mounts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "mountinfo"
    path.write_text(f"{_LOCAL}\n")
    monkeypatch.setattr(network_folder, "_MOUNTS", path)
    return path


def mount(mounts: Path, folder: Path, kind: str) -> None:
    place = str(folder).replace(" ", "\\040")
    with mounts.open("a") as file:
        file.write(f"40 27 0:50 / {place} rw shared:1 - {kind} server:/data rw\n")


@pytest.mark.parametrize("kind", ["nfs", "nfs4", "cifs", "smb3", "fuse.sshfs", "ceph"])
def test_the_type_of_the_nearest_mount_counts(mounts: Path, tmp_path: Path, kind: str) -> None:
    shared = tmp_path / "a share"
    (shared / "local").mkdir(parents=True)
    assert describe_network_folder(shared) is None
    mount(mounts, shared, kind)
    mount(mounts, shared / "local", "xfs")
    warning = describe_network_folder(shared / "instance")
    assert warning is not None
    assert f"network file system ({kind})" in warning
    assert describe_network_folder(shared / "local" / "instance") is None
    assert describe_network_folder(tmp_path / "a share beside it") is None


def test_systems_without_mount_information_give_no_warning(mounts: Path, tmp_path: Path) -> None:
    mounts.unlink()
    assert describe_network_folder(tmp_path) is None


def test_commands_and_python_warn_once(
    mounts: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder = tmp_path / "instance"
    sleeper.create_instance(folder).close()
    mount(mounts, tmp_path, "nfs4")
    result = CliRunner().invoke(app, ["--instance", str(folder), "table", "list"])
    assert result.exit_code == 0
    assert result.stderr.count("is on a network file system (nfs4)") == 1
    from sleeper.api.instance import _warn_of_network

    _warn_of_network.cache_clear()
    with caplog.at_level(logging.WARNING):
        for _ in range(2):
            sleeper.open_instance(folder).close()
    assert caplog.text.count("is on a network file system (nfs4)") == 1
