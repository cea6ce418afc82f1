"""A lock of a folder or bucket, for one writing process.

A folder is locked by its file system, which releases the lock when the process ends. In a bucket
the lock is an object that the process renews. If the process dies, the lock expires, and another
process of the same machine takes it at once.
"""

import os
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import obstore
from obstore.exceptions import AlreadyExistsError, BaseError, PreconditionError
from obstore.store import S3Store

from sleeper.clock import Clock, iso_time
from sleeper.errors import ConflictError, NotFoundError, SleeperError, UnavailableError
from sleeper.jobs.process import is_alive, this_process
from sleeper.json_codec import JsonCodec
from sleeper.renewal import Renewal
from sleeper.storage.bucket_folder import store_errors
from sleeper.storage.disk import make_folder, open_lock, try_lock
from sleeper.storage.location import DataRoot

_SECONDS = 300


@dataclass(frozen=True, slots=True)
class _Holder:
    """The process that holds a lock until a time."""

    work: str
    host: str
    process: str
    until: int

    @property
    def is_gone(self) -> bool:
        return self.host == socket.gethostname() and not is_alive(self.process)

    def describe(self, root: DataRoot, path: str) -> str:
        return (
            f"{root.url_of(path)} is locked by {self.work} on {self.host}, process "
            f"{self.process.partition('@')[0]}"
        )


_CODEC = JsonCodec(_Holder)


@dataclass(frozen=True, slots=True)
class Lock:
    """A held lock. `check` raises ConflictError if another process has taken it."""

    check: Callable[[], None]


@contextmanager
def lock_root(root: DataRoot, path: str, work: str, clock: Clock) -> Iterator[Lock]:
    """Holds the lock of that name. ConflictError names the process that holds it.

    `work` describes this process to others.
    """
    if isinstance(root.store, S3Store):
        with _lock_object(root, root.store, path, work, clock) as lock:
            yield lock
        return
    with _lock_file(root, path, work, clock):
        yield Lock(lambda: None)


def is_locked(root: DataRoot, path: str, clock: Clock) -> bool:
    """Returns whether a process holds the lock of that name. It may end at any time."""
    if isinstance(root.store, S3Store):
        current = _read(root.store, path)
        holder = _parse(current[0]) if current else None
        return current is not None and (
            holder is None or (holder.until > clock() and not holder.is_gone)
        )
    return _is_file_locked(Path(root.url_of(path)))


def _is_file_locked(file: Path) -> bool:
    """Takes the lock for a moment, without a change of the file."""
    try:
        descriptor = os.open(file, os.O_RDONLY)
    except FileNotFoundError:
        return False
    except OSError as error:
        raise UnavailableError(f"cannot open {file}: {error.strerror}") from error
    try:
        return not try_lock(descriptor, is_shared=True)
    except OSError as error:
        raise UnavailableError(f"cannot lock {file}: {error.strerror}") from error
    finally:
        os.close(descriptor)


@contextmanager
def _lock_file(root: DataRoot, path: str, work: str, clock: Clock) -> Iterator[None]:
    root.check_writable()
    file = Path(root.url_of(path))
    make_folder(file.parent)
    descriptor = _open_locked(file, root, path)
    try:
        with suppress(OSError):  # a full disk: messages of others lack the holder
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, _content(work, clock), 0)
        yield
    finally:
        with suppress(OSError):
            file.unlink()
        os.close(descriptor)


def _open_locked(file: Path, root: DataRoot, path: str) -> int:
    while True:
        try:
            descriptor = open_lock(file)
        except OSError as error:
            raise UnavailableError(f"cannot lock {file}: {error.strerror}") from error
        is_held = False
        try:
            if not try_lock(descriptor):
                raise _refusal(root, path, os.pread(descriptor, 10_000, 0))
            # The previous holder may have deleted the file that this process had opened.
            is_held = file.exists() and os.path.samestat(os.fstat(descriptor), file.stat())
        except OSError as error:
            if not isinstance(error, FileNotFoundError):
                raise UnavailableError(f"cannot lock {file}: {error.strerror}") from error
        finally:
            if not is_held:
                os.close(descriptor)
        if is_held:
            return descriptor


@contextmanager
def _lock_object(
    root: DataRoot, store: S3Store, path: str, work: str, clock: Clock
) -> Iterator[Lock]:
    tag = _take(root, store, path, work, clock)
    mutex = threading.Lock()

    def renew() -> None:
        nonlocal tag
        with mutex:
            tag = _put(root, store, path, _content(work, clock), tag)

    renewal = Renewal(f"lock {root.url_of(path)}", renew, _SECONDS / 5, ends_on=ConflictError)
    try:
        with renewal:
            yield Lock(renew)
    finally:
        with suppress(SleeperError):  # another process has it, or it expires
            renew()
            root.delete([path])


def _take(root: DataRoot, store: S3Store, path: str, work: str, clock: Clock) -> str | None:
    with suppress(ConflictError):
        return _put(root, store, path, _content(work, clock), None)
    current = _read(store, path)
    if current is None:
        raise ConflictError(f"{root.url_of(path)} was locked until now: try again")
    content, tag = current
    holder = _parse(content)
    if holder is not None and holder.until > clock() and not holder.is_gone:
        raise _refusal(root, path, content)
    return _put(root, store, path, _content(work, clock), tag)


def _put(root: DataRoot, store: S3Store, path: str, content: bytes, tag: str | None) -> str | None:
    """Writes the object if it has that tag, or does not exist. ConflictError otherwise."""
    try:
        result = obstore.put(
            store, path, content, mode={"e_tag": tag} if tag else "create", use_multipart=False
        )
    except (AlreadyExistsError, PreconditionError) as error:
        # The store repeats a put whose response was lost.
        current = _read(store, path)
        if current is not None and current[0] == content:
            return current[1]
        raise ConflictError(f"{root.url_of(path)} was locked by another process") from error
    except (BaseError, OSError) as error:
        raise UnavailableError(f"cannot lock {root.url_of(path)}: {error}") from error
    return result["e_tag"]


def _read(store: S3Store, path: str) -> tuple[bytes, str | None] | None:
    """Returns the object's content and tag, None if it does not exist."""
    with suppress(NotFoundError), store_errors(path):
        answer = obstore.get(store, path)
        return bytes(answer.bytes()), answer.meta["e_tag"]
    return None


def _content(work: str, clock: Clock) -> bytes:
    until = clock() + _SECONDS * 1000
    holder = _Holder(work, socket.gethostname(), this_process(), until)
    return _CODEC.format(holder).encode()


def _parse(content: bytes) -> _Holder | None:
    with suppress(Exception):
        return _CODEC.parse(content.decode(), "lock")
    return None


def _refusal(root: DataRoot, path: str, content: bytes) -> ConflictError:
    holder = _parse(content)
    if holder is None:
        return ConflictError(f"{root.url_of(path)} is locked by another process")
    until = f" (until {iso_time(holder.until)}, or longer)" if root.buckets else ""
    return ConflictError(holder.describe(root, path) + until)
