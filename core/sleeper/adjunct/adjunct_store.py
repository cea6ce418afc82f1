"""An adjunct store of a process."""

import os
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Protocol, Self, runtime_checkable

from sleeper import opening
from sleeper.adjunct.definition import add_password, parse_store
from sleeper.adjunct.extraction import ExtractorSource
from sleeper.adjunct.feeds.dataset_feed import DatasetProcess
from sleeper.adjunct.feeds.opening import FeedContext, own_instance
from sleeper.adjunct.open_store import (
    Filling,
    Mode,
    OpenStore,
    UpdateSettings,
    open_shared,
)
from sleeper.adjunct.versions.status import StoreStatus
from sleeper.adjunct.versions.version import Lookups, StoreVersion
from sleeper.errors import InvalidRequestError
from sleeper.instance import Instance as Ports
from sleeper.user_code.named import name_object

_BUILD = (sys.executable, "-P", "-m", "sleeper.adjunct.worker_build")


@runtime_checkable
class HasPorts(Protocol):
    """An open `sleeper.Instance`, whose methods import this module."""

    _ports: Ports


class AdjunctStore(Lookups):
    """A local read-only copy of a dataset, which follows its input. A context manager."""

    def __init__(self, store: OpenStore, close: Callable[[], None]) -> None:
        self._store = store
        self._close = close
        self._is_closed = False

    @classmethod
    def open(
        cls,
        name: str,
        input: str | None = None,
        path: str | os.PathLike[str] | None = None,
        *,
        instance: HasPorts | str | os.PathLike[str] | None = None,
        type: str = "rocksdb",
        bootstrap: bool = True,
        reset_offset: bool = False,
        partition: str | None = None,
        max_age: str = "1d",
        password: str | None = None,
        refresh_seconds: float | None = 1.0,
        bootstrap_seconds: float = 300.0,
        broadcast: bool = False,
        extractor: object = None,
        extractor_config: Mapping[str, str] | None = None,
        ttl: str | None = None,
        cache_bytes: int | None = None,
    ) -> Self:
        """Opens the store of this name in the folder `path`, and fills it from `input`.

        Without an input, the store is read that another process fills. An input is `table:NAME`.
        `instance` is that of the table: an open one, or as for `sleeper.open_instance`.

        With `bootstrap`, this returns when there is a complete copy; otherwise at once, and a
        store that lacks history says so in its status. `reset_offset` ignores the saved position
        if the store has to be created. `type` is `rocksdb` or `memory`. `partition` is `I/N` for
        the keys whose hash modulo N is I. A copy that was not updated for `max_age` is made again.
        `password` is a reference to that of the input, such as `env:NAME`.
        The store looks for new data every `refresh_seconds`, or only in `refresh` if None.

        With `broadcast`, the threads and processes of a machine may open the store at the same
        time: one process fills it, and the others read its files. If that process ends, another
        one takes over. All of them name the same input, partition and settings.

        `extractor` makes keys and values of the input's data: an object with `get_key(envelope)`
        and `get_value(envelope)`, a factory of one with `get_extractor(config)`, the class of
        either, the name of one that a wheel of the instance registers, or `module:object`.
        Factories get `extractor_config`. With a method `process(envelope, store)` instead, it is a
        processor, which reads and writes the store for each message of a stream.

        With `ttl`, such as `1h`, a value is returned for that long after the store wrote it, and
        then deleted. A load begins the time again.

        With `cache_bytes`, the store has no copy of its table: it reads a key when it is asked for,
        and keeps keys in so many bytes of memory. `range` and `all` are refused.

        Raises `ConflictError` if another process fills the store, `InvalidRequestError` for an
        argument that is not valid, `NotFoundError` if the input does not exist, and
        `UnavailableError` if it has no complete dataset after `bootstrap_seconds`.
        """
        parent = None if path is None else Path(path)
        if input is None:
            if parent is None:
                raise InvalidRequestError(
                    f"store {name!r} has no input and no path (expected one of them)"
                )
            settings = UpdateSettings(refresh_seconds)
            store = OpenStore(name, parent, Mode.READ, settings)
            return cls(store, store.close)
        named = None if extractor is None else name_object(extractor)
        text = add_password(input, password)
        definition = parse_store(
            *(name, text, type, bootstrap, reset_offset, max_age, named, partition),
            ttl=ttl,
            cache_bytes=cache_bytes,
        )
        settings = UpdateSettings(refresh_seconds, bootstrap_seconds)
        given = None if isinstance(extractor, str) else extractor
        extractors = ExtractorSource(given, extractor_config or {}, allows_imports=True)
        if broadcast:
            # The store may outlive the instance that one of its openings was given.
            where = instance._ports.where if isinstance(instance, HasPorts) else instance
            filling = Filling(definition, partial(_open_context, where, extractors))
            return cls(*open_shared(parent, settings, filling))
        filling = Filling(definition, partial(_open_context, instance, extractors))
        store = OpenStore(name, parent, Mode.FILL, settings, filling)
        return cls(store, store.close)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()

    def close(self) -> None:
        """Stops following the input and closes the store. Iterators may finish. Idempotent.

        After it, other methods raise `InvalidRequestError`.
        """
        if not self._is_closed:
            self._is_closed = True
            self._close()

    def refresh(self) -> int:
        """Writes the data that the input has now. Returns the number of keys that were written.

        Raises `UnavailableError` if the input does not respond; lookups go on.
        """
        return self._opened.refresh()

    def status(self) -> StoreStatus:
        """Returns how far the store is."""
        return self._opened.status()

    def __repr__(self) -> str:
        return f"AdjunctStore({self._store.name!r})"

    @property
    def _version(self) -> StoreVersion:
        return self._opened.serving

    @property
    def _opened(self) -> OpenStore:
        if self._is_closed:
            raise InvalidRequestError(f"store {self._store.name!r} is closed")
        return self._store


@contextmanager
def _open_context(
    instance: HasPorts | str | os.PathLike[str] | None, extractors: ExtractorSource
) -> Iterator[FeedContext]:
    if isinstance(instance, HasPorts):
        ports = instance._ports
        yield FeedContext(lambda: ports, extractors, DatasetProcess(_BUILD, ports.where))
        return
    process = DatasetProcess(_BUILD, None if instance is None else os.fspath(instance))
    with own_instance(partial(opening.open_instance, instance)) as open_once:
        yield FeedContext(open_once, extractors, process)
