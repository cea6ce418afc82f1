"""The engine on local disk: RocksDB, by rocksdict."""

import contextlib
import logging
import os
import shutil
import stat
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import islice
from pathlib import Path

import rocksdict
from rocksdict import AccessType, Rdict, WriteBatch

from sleeper.adjunct.engines.engine import CHUNK_ROWS, KEYS_END, STATE_KEY, Writes
from sleeper.errors import DataError, SleeperError, UnavailableError, is_transient
from sleeper.storage.disk import make_folder
from sleeper.temporary import temporary_folder

logger = logging.getLogger(__name__)

CACHE_BYTES = 64 * 1024**2
_FILTER_BITS = 10
_WRITE_BUFFER_BYTES = 32 * 1024**2
_LOG_FILES = 2
_OPENINGS = 5
_BUFFERS = 4
_FULL_BUFFERS_MAX = 2
_FULL_BUFFERS = "rocksdb.num-immutable-mem-table"
_FAILURES = "rocksdb.background-errors"
_BUFFER_SECONDS = 0.001
# Sorting costs more than it saves for fewer keys.
_MANY = 10_000
# What RocksDB says of an error that another try or more space may cure. Damage is none of them.
_TRANSIENT = (
    "no space left",
    "quota exceeded",
    "file too large",
    "too many open files",
    "cannot allocate memory",
    "no locks available",
    "permission denied",
    "read-only file system",
    "resource busy",
    "resource temporarily unavailable",
    "timed out",
)
_DAMAGE = "Corruption"


class RocksDbEngine:
    """See the protocol.

    `reads_only` opens what another process writes, and `is_fixed` what nobody changes any more,
    which takes 1 ms instead of 20.
    """

    def __init__(
        self,
        folder: Path,
        reads_only: bool = False,
        cache_bytes: int = CACHE_BYTES,
        is_fixed: bool = False,
    ) -> None:
        self._folder = folder
        self._is_fixed = is_fixed
        self._cache_bytes = cache_bytes
        self._own_folder: str | None = None
        self._follows = reads_only
        # rocksdict writes its configuration also to read.
        self._has_links = (reads_only or is_fixed) and not _may_write_config(folder)
        self.has_failed = False
        access = AccessType.read_write()
        if reads_only or self._has_links:
            self._own_folder = tempfile.mkdtemp(dir=temporary_folder("adjunct-logs"))
        if reads_only:
            assert self._own_folder is not None
            # RocksDB writes its log of events there.
            access = AccessType.secondary(self._own_folder)
        elif is_fixed:
            access = AccessType.read_only()
        else:
            make_folder(folder)
        try:
            with _errors(folder):
                self._db = self._open(access)
        except BaseException:
            self._delete_own_folder()
            raise
        if not reads_only and not is_fixed:
            _close_config(folder / _CONFIG)
        self.get = self._db.get

    def get_many(self, keys: Sequence[bytes]) -> list[bytes | None]:
        """See the protocol. Sorted keys share blocks, so very many are sorted."""
        if len(keys) < _MANY:
            return self._get_list(list(keys))
        order = sorted(range(len(keys)), key=keys.__getitem__)
        values = self._get_list([keys[index] for index in order])
        result: list[bytes | None] = [None] * len(keys)
        for index, value in zip(order, values, strict=True):
            result[index] = value
        return result

    def scan(self, low: bytes, high: bytes) -> Iterator[tuple[bytes, bytes]]:
        options = rocksdict.ReadOptions()
        options.set_iterate_upper_bound(high)
        pairs: Iterator[tuple[bytes, bytes]] = self._db.items(from_key=low, read_opt=options)  # type: ignore[assignment]
        return self._check_end(pairs, low, options)

    def load(
        self, writes: Iterable[Writes], state: bytes, pause: Callable[[], None] | None = None
    ) -> int:
        """See the protocol. Writes without RocksDB's log, and compacts into one sorted run.

        rocksdict holds Python's lock while it writes, and while it finishes a file of sorted keys,
        which takes tens of milliseconds. RocksDB writes full buffers in threads of its own.
        """
        rows = 0
        with _errors(self._folder):
            self._db.set_write_options(_write_options(has_log=False))
            for each in writes:
                rows += self._load(each, pause)
            self._db.flush()
            self._db.set_write_options(_write_options(has_log=True))
            self._db.compact_range(None, None)
        self.apply((), state)
        return rows

    def _load(self, writes: Writes, pause: Callable[[], None] | None) -> int:
        pairs = zip(writes.keys, writes.values, strict=True)
        while chunk := list(islice(pairs, CHUNK_ROWS)):
            batch = WriteBatch(raw_mode=True)
            for key, value in chunk:
                batch.put(key, value)
            # A write would wait for the disk with Python's lock.
            while self._has_full_buffers():
                time.sleep(_BUFFER_SECONDS)
            self._db.write(batch)
            if pause is not None:
                pause()
        return len(writes.keys)

    def _has_full_buffers(self) -> bool:
        full = self._db.property_int_value(_FULL_BUFFERS) or 0
        # After an error, nothing empties them, and the next write raises it.
        return full >= _FULL_BUFFERS_MAX and not self._db.property_int_value(_FAILURES)

    def apply(self, writes: Iterable[Writes], state: bytes) -> None:
        batch = WriteBatch(raw_mode=True)
        for each in writes:
            for deleted in each.deleted_ranges:
                batch.delete_range(deleted.low, deleted.high or KEYS_END)
            for key, value in zip(each.keys, each.values, strict=True):
                if value is None:
                    batch.delete(key)
                else:
                    batch.put(key, value)
        batch.put(STATE_KEY, state)
        with self._writing():
            self._db.write(batch)

    def state(self) -> bytes | None:
        with _errors(self._folder):
            content: bytes | None = self._db.get(STATE_KEY)
        return content

    def fork(self, folder: Path | None) -> "RocksDbEngine":
        """See the protocol. The files are shared by hard links."""
        assert folder is not None
        make_folder(folder.parent)
        with _errors(self._folder):
            if self.has_failed:
                self._copy_files(folder)
            else:
                rocksdict.Checkpoint(self._db).create_checkpoint(str(folder))
                config = self._folder / _CONFIG
                if config.exists():
                    shutil.copy(config, folder / _CONFIG)
        return RocksDbEngine(folder, cache_bytes=self._cache_bytes)

    def catch_up(self) -> bool:
        """See the protocol.

        A secondary instance keeps what it read of RocksDB's log in memory also when the other
        process has written newer values to files, and then returns some old values and some new
        ones. So it only reads more of the log, and is opened again after other changes.
        """
        if not self._follows:
            return True
        if self._manifest() != self._opened_manifest:
            return False
        with _errors(self._folder):
            self._db.try_catch_up_with_primary()
        return self._manifest() == self._opened_manifest

    def _open(self, access: AccessType) -> Rdict:
        """Opens the files. UnavailableError if they change all the time while they are read."""
        for _ in range(_OPENINGS):
            self._opened_manifest = self._manifest()
            path = self._link_files() if self._has_links else self._folder
            opened = Rdict(str(path), _options(self._cache_bytes), access_type=access)
            if not self._follows or self._manifest() == self._opened_manifest:
                return opened
            opened.close()
        raise UnavailableError(f"store at {self._folder}: its files change while they are opened")

    def _link_files(self) -> Path:
        """Returns a folder of this process with links to the files, for a user who may only read.

        It has a copy of the file that rocksdict writes, which nobody else needs to write.
        """
        assert self._own_folder is not None
        links = Path(tempfile.mkdtemp(dir=self._own_folder))
        for path in self._folder.resolve().iterdir():
            if path.name == _CONFIG:
                (links / _CONFIG).write_bytes(path.read_bytes())
            else:
                (links / path.name).symlink_to(path)
        return links

    def _manifest(self) -> list[tuple[str, int]]:
        """Returns the names and sizes of the lists of files, which grow with each new file.

        If the files are linked, also the names of RocksDB's logs, of which there may be a new one.
        """
        listed = [(path.name, 0) for path in sorted(self._folder.glob("*.log")) if self._has_links]
        for path in sorted(self._folder.glob("MANIFEST-*")):
            with contextlib.suppress(FileNotFoundError):
                listed.append((path.name, path.stat().st_size))
        return listed

    def sync(self) -> None:
        if self._is_fixed:
            return
        with self._writing():
            self._db.flush()
            self._db.flush_wal(True)

    def size(self) -> int:
        total = 0
        for entry in os.scandir(self._folder):
            with contextlib.suppress(FileNotFoundError):  # RocksDB deletes files meanwhile
                total += entry.stat().st_size
        return total

    def close(self) -> None:
        """See the protocol. What a full disk does not take stays in RocksDB's log."""
        try:
            self._db.close()
        except rocksdict.DbClosedError:
            pass
        except Exception as error:
            logger.warning("store at %s was not flushed at its end: %s", self._folder, error)
        self._delete_own_folder()

    @contextmanager
    def _writing(self) -> Iterator[None]:
        try:
            with _errors(self._folder):
                yield
        except SleeperError:
            self.has_failed = True
            raise

    def _copy_files(self, folder: Path) -> None:
        """Copies the files as a crash would leave them. RocksDB does not change them any more."""
        folder.mkdir()
        for entry in sorted(self._folder.iterdir()):
            if entry.suffix == ".sst":
                os.link(entry, folder / entry.name)
            elif entry.name != _LOCK:
                shutil.copy(entry, folder / entry.name)

    def _check_end(
        self, pairs: Iterator[tuple[bytes, bytes]], low: bytes, options: rocksdict.ReadOptions
    ) -> Iterator[tuple[bytes, bytes]]:
        """Yields the pairs. DataError if they end before the range, because a block is damaged."""
        last = (low, b"")
        for last in pairs:
            yield last
        # The iterator of rocksdict also ends where RocksDB's has an error, and does not tell.
        rest = self._db.iter(options)
        with _errors(self._folder):
            rest.seek(last[0])
            if rest.valid():
                rest.next()
            rest.status()

    def _delete_own_folder(self) -> None:
        if self._own_folder is not None:
            shutil.rmtree(self._own_folder, ignore_errors=True)

    def _get_list(self, keys: list[bytes]) -> list[bytes | None]:
        values: list[bytes | None] = self._db.get(keys)  # type: ignore[arg-type, assignment]
        return values


_CONFIG = "rocksdict-config.json"
_LOCK = "LOCK"


def _may_write_config(folder: Path) -> bool:
    config = folder / _CONFIG
    return os.access(config if config.exists() else folder, os.W_OK) or not folder.is_dir()


def _close_config(config: Path) -> None:
    """Removes the write permission of other users, which earlier versions granted."""
    with contextlib.suppress(OSError):
        config.chmod(stat.S_IMODE(config.stat().st_mode) & ~stat.S_IWOTH)


def _write_options(has_log: bool) -> rocksdict.WriteOptions:
    options = rocksdict.WriteOptions()
    options.disable_wal = not has_log  # type: ignore[method-assign, assignment] # a property
    return options


def _options(cache_bytes: int) -> rocksdict.Options:
    options = rocksdict.Options(raw_mode=True)
    options.create_if_missing(True)
    table = rocksdict.BlockBasedOptions()
    table.set_bloom_filter(_FILTER_BITS, False)
    table.set_block_cache(rocksdict.Cache(cache_bytes))
    table.set_data_block_index_type(rocksdict.DataBlockIndexType.binary_and_hash())
    options.set_block_based_table_factory(table)
    # Blocks are read where they are, in the page cache of the system, without a copy.
    options.set_compression_type(rocksdict.DBCompressionType.none())
    options.set_allow_mmap_reads(True)
    options.set_write_buffer_size(_WRITE_BUFFER_BYTES)
    options.set_max_write_buffer_number(_BUFFERS)
    options.set_keep_log_file_num(_LOG_FILES)
    return options


@contextmanager
def _errors(folder: Path) -> Iterator[None]:
    """Converts errors of rocksdict, which are plain exceptions with RocksDB's text."""
    try:
        yield
    except SleeperError:
        raise
    except Exception as error:
        text = str(error)
        is_passing = is_transient(error) or any(each in text.lower() for each in _TRANSIENT)
        is_passing = is_passing and not text.startswith(_DAMAGE)
        kind = UnavailableError if is_passing else DataError
        raise kind(f"store at {folder}: {text}") from error
