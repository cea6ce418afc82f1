"""File systems of fsspec in a local folder, which differ as real ones do."""

import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import fsspec
import hdfs_native.fsspec
import pytest
from fsspec.implementations.local import LocalFileSystem
from fsspec.spec import AbstractFileSystem


class SftpLike(LocalFileSystem):  # type: ignore[misc] # fsspec has no types
    """Has folders, and renames replace files."""

    protocol = "sftplike"


class WebHdfsLike(SftpLike):
    """A rename does not replace files, and does not report it."""

    protocol = "webhdfslike"

    def mv(self, path1: str, path2: str, **_: Any) -> None:
        if not Path(path2).exists():
            os.rename(path1, path2)


class SmbLike(SftpLike):
    """A rename does not replace files."""

    protocol = "smblike"

    def mv(self, path1: str, path2: str, **_: Any) -> None:
        os.link(path1, path2)
        os.unlink(path1)


class ObjectStore(SftpLike):
    """Has neither folders nor renames."""

    protocol = "objectstore"
    mv = AbstractFileSystem.mv

    def put_file(self, lpath: str, rpath: str, *_: Any, **__: Any) -> None:
        Path(rpath).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(lpath, rpath)

    def makedirs(self, *_: Any, **__: Any) -> None:
        raise NotImplementedError


for _each in (SftpLike, WebHdfsLike, SmbLike, ObjectStore):
    fsspec.register_implementation(_each.protocol, _each, clobber=True)


class HdfsClient:
    """The part of hdfs-native's client that its file system uses, in a folder."""

    def __init__(self, url: str, _: object) -> None:
        self.folder = Path(_folder_of_hdfs) / url.partition("://")[2].replace(":", "-")
        self.folder.mkdir(exist_ok=True)

    def get_file_info(self, path: str) -> Any:
        file = self._local(path)
        return SimpleNamespace(
            path=path,
            length=file.stat().st_size,
            isdir=file.is_dir(),
            permission=0o644,
            owner="",
            group="",
            modification_time=0,
            access_time=0,
        )

    def list_status(self, path: str, _: bool) -> Iterator[Any]:
        names = os.listdir(self._local(path))
        return (self.get_file_info(f"{path.rstrip('/')}/{name}") for name in names)

    def mkdirs(self, path: str, _: int, create_parent: bool) -> None:
        self._local(path).mkdir(parents=create_parent, exist_ok=True)

    def rename(self, src: str, dst: str, overwrite: bool) -> None:
        if self._local(dst).exists() and not overwrite:
            raise FileExistsError(dst)
        os.rename(self._local(src), self._local(dst))

    def delete(self, path: str, _: bool) -> bool:
        local = self._local(path)
        local.rmdir() if local.is_dir() else local.unlink()
        return True

    def read(self, path: str) -> Any:
        return self._local(path).open("rb")

    def create(self, path: str, write_options: Any) -> Any:
        return self._local(path).open("wb" if write_options.overwrite else "xb")

    def _local(self, path: str) -> Path:
        assert path.startswith("/")
        return self.folder / path[1:]


_folder_of_hdfs = ""


def use_hdfs(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Makes `hdfs://` a file system in the folder, as long as the test runs."""
    hdfs_native.fsspec.HdfsFileSystem.clear_instance_cache()
    monkeypatch.setattr(f"{__name__}._folder_of_hdfs", str(folder))
    monkeypatch.setattr(hdfs_native.fsspec, "Client", HdfsClient)
