"""Files of any file system that fsspec knows, such as HDFS. Loads fsspec on first use.

File systems with a rename get a file under a temporary name, and then its name. Object stores have
no rename, and an upload gives an object its name when it is complete.
"""

import contextlib
import errno
import io
import re
import tempfile
import uuid
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, TypeVar

from sleeper.errors import InvalidRequestError, NotFoundError, SleeperError, UnavailableError
from sleeper.files import StoredObject
from sleeper.retries import Backoff, retry
from sleeper.storage.location import UNFINISHED_SUFFIX, check_path
from sleeper.storage.range_file import RangeFile
from sleeper.temporary import temporary_folder

R = TypeVar("R")

_URL = re.compile(r"([a-z][a-z0-9+.-]*)://(.*)")
# Their files end with the process, or with a file that wraps them.
_REFUSED = ("memory", "data", "reference", "zip", "tar", "libarchive")
_REPLACES_ON_REQUEST = ("hdfs", "viewfs")


class FileSystemRoot:
    """A folder of a file system, by a URL such as `hdfs://namenode:8020/copies`.

    Credentials and options come from fsspec's configuration and the environment.
    InvalidRequestError if the scheme is unknown, or its package is not installed.
    """

    def __init__(self, url: str) -> None:
        self._url = parse_url(url)
        self._scheme = self._url.partition("://")[0]
        fs = self._open_file_system()
        self._folder = str(fs._strip_protocol(self._url)).rstrip("/")
        self._renames = _has_rename(fs)

    def __reduce__(self) -> tuple[type["FileSystemRoot"], tuple[str]]:
        """Pickles the URL, so that a task on another machine opens its own client."""
        return FileSystemRoot, (self._url,)

    def url_of(self, path: str) -> str:
        """Returns the URL of a file."""
        return f"{self._url}/{path}"

    def list_folders(self, folder: str) -> list[str]:
        """Returns the names of the folders in a folder, in no order."""
        return [name for name, info in self._list(folder) if info["type"] == "directory"]

    def list_objects(self, folder: str) -> Iterator[StoredObject]:
        """Yields all files below a folder, in no order, without the times of their changes."""
        for name, info in self._list(folder):
            path = f"{folder}/{name}" if folder else name
            if info["type"] == "directory":
                yield from self.list_objects(path)
            else:
                yield StoredObject(path, int(info["size"]), 0)

    def read(self, path: str) -> bytes:
        """Returns the content of a file. NotFoundError if it does not exist."""

        def read() -> bytes:
            with self._errors("read", path):
                content: bytes = self._open_file_system().cat_file(self._path_of(path))
                return content

        return _retry(read)

    def open_ranges(self, path: str) -> io.RawIOBase:
        """Opens a file for reads of ranges, one request each. Reads can be repeated.

        FileNotFoundError, now or at a read, if it does not exist.
        """
        return _OpenFile(self, path)

    @contextlib.contextmanager
    def replacing(self, path: str) -> Iterator[Any]:
        """Yields a binary file that replaces the file at the end, if there was no error.

        The content is staged on local disk, so an upload can be repeated after an error.
        """
        with tempfile.NamedTemporaryFile(dir=temporary_folder("uploads")) as staged:
            try:
                yield staged
                staged.flush()
                _retry(partial(self._upload, staged.name, path))
            except OSError as error:
                raise UnavailableError(f"cannot write {self.url_of(path)}: {error}") from error

    def delete(self, paths: list[str]) -> None:
        """Deletes the files. Missing files are no error."""
        for path in paths:
            with contextlib.suppress(NotFoundError), self._errors("delete", path):
                self._open_file_system().rm_file(self._path_of(path))

    def remove_empty_folders(self, folder: str) -> None:
        """Removes a folder and those below it, if they are empty. Object stores have none."""
        if not self._renames:
            return
        for name, info in self._list(folder):
            if info["type"] == "directory":
                self.remove_empty_folders(f"{folder}/{name}")
        # Some file systems would remove the content too.
        if not any(True for _ in self._list(folder)):
            with contextlib.suppress(NotFoundError), self._errors("delete", folder):
                self._open_file_system().rmdir(self._path_of(folder))

    def size(self, path: str) -> int:
        """Returns the bytes of a file. NotFoundError if it does not exist."""
        with self._errors("read", path):
            fs = self._open_file_system()
            fs.invalidate_cache()
            return int(fs.info(self._path_of(path))["size"])

    def read_range(self, path: str, start: int, stop: int) -> bytes:
        """Returns a part of a file. NotFoundError if it does not exist."""
        with self._errors("read", path):
            fs = self._open_file_system()
            content: bytes = fs.cat_file(self._path_of(path), start=start, end=stop)
            return content

    def _upload(self, staged: str, path: str) -> None:
        target = self._path_of(path)
        with self._errors("write", path):
            fs = self._open_file_system()
            if not self._renames:
                fs.put_file(staged, target)
                return
            unfinished = f"{target}.{uuid.uuid4().hex[:16]}{UNFINISHED_SUFFIX}"
            fs.makedirs(target.rpartition("/")[0], exist_ok=True)
            try:
                fs.put_file(staged, unfinished)
                self._rename(fs, unfinished, target)
            except BaseException:
                with contextlib.suppress(Exception):
                    fs.rm_file(unfinished)
                raise

    def _rename(self, fs: Any, old: str, new: str) -> None:
        if self._scheme in _REPLACES_ON_REQUEST:
            fs.mv(old, new, overwrite=True)
            return
        try:
            fs.mv(old, new)
        except OSError as error:
            if error.errno != errno.EEXIST:
                raise
        try:
            fs.invalidate_cache()
            fs.info(old)
        except FileNotFoundError:
            return
        # WebHDFS and SMB do not replace a file. Some report no error.
        fs.rm_file(new)
        fs.mv(old, new)

    def _list(self, folder: str) -> Iterator[tuple[str, dict[str, Any]]]:
        with self._errors("list", folder):
            try:
                fs = self._open_file_system()
                # Other processes add files.
                fs.invalidate_cache()
                result = fs.ls(self._path_of(folder), detail=True)
            except FileNotFoundError:
                return
        for info in result:
            yield str(info["name"]).rstrip("/").rpartition("/")[2], info

    def _path_of(self, path: str) -> str:
        return f"{self._folder}/{check_path(path)}" if path else self._folder or "/"

    def _open_file_system(self) -> Any:
        """Returns the file system. fsspec keeps one for each thread."""
        try:
            from fsspec.core import url_to_fs
        except ImportError as error:
            raise InvalidRequestError(
                f"{self._url} needs the package fsspec (install 'sleeper-store[hdfs]')"
            ) from error
        try:
            return url_to_fs(self._url)[0]
        except ImportError as error:
            raise InvalidRequestError(f"{self._url} needs another package: {error}") from error
        except ValueError as error:
            raise InvalidRequestError(f"{self._url} cannot be opened: {error}") from error
        except Exception as error:
            raise UnavailableError(f"cannot open {self._url}: {error}") from error

    @contextlib.contextmanager
    def _errors(self, action: str, path: str) -> Iterator[None]:
        """Translates the errors of file systems, which have types of their own."""
        url = self.url_of(path)
        try:
            yield
        except SleeperError:
            raise
        except FileNotFoundError as error:
            raise NotFoundError(f"object {url} does not exist") from error
        except NotImplementedError as error:
            raise InvalidRequestError(
                f"cannot {action} {url}: file systems {self._scheme}:// do not support this"
            ) from error
        except Exception as error:
            kind = _RefusedError if isinstance(error, PermissionError) else UnavailableError
            raise kind(f"cannot {action} {url}: {error}") from error


def parse_url(url: str) -> str:
    """Returns the URL of a folder without the slash at its end.

    InvalidRequestError if the files of its scheme do not outlive the process.
    """
    match = _URL.fullmatch(url)
    if match is None or "::" in url or match[1] in _REFUSED:
        raise InvalidRequestError(
            f"{url} is not a lasting file system (expected a folder, s3://bucket/prefix, or a URL "
            "such as hdfs://namenode:8020/folder)"
        )
    return f"{match[1]}://{match[2].rstrip('/')}"


def _has_rename(fs: Any) -> bool:
    """Returns whether a file system renames files. fsspec's own method copies and deletes."""
    from fsspec import AbstractFileSystem

    return type(fs).mv is not AbstractFileSystem.mv


class _RefusedError(UnavailableError):
    """The file system refuses the access."""


def _retry(action: Callable[[], R]) -> R:
    backoff = Backoff.for_requests(0.1, 5)
    return retry(action, on=UnavailableError, unless=_RefusedError, backoff=backoff)


class _OpenFile(RangeFile):
    def __init__(self, root: FileSystemRoot, path: str) -> None:
        self._root, self._path = root, path
        with _missing_file():
            super().__init__(root.size(path))

    def read_range(self, start: int, stop: int) -> bytes:
        with _missing_file():
            content = self._root.read_range(self._path, start, stop)
        if not content:
            raise UnavailableError(f"cannot read {self._root.url_of(self._path)}: it ended early")
        return content


@contextlib.contextmanager
def _missing_file() -> Iterator[None]:
    try:
        yield
    except NotFoundError as error:
        raise FileNotFoundError(str(error)) from error
