"""Open stores of a process: one that it fills, or one that another process fills."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from threading import Lock
from typing import Protocol

from sleeper.adjunct.definition import StoreDefinition, StoreState
from sleeper.adjunct.extraction import NAMED_EXTRACTORS, ExtractorSource
from sleeper.adjunct.feeds.dataset_feed import DatasetProcess
from sleeper.adjunct.feeds.opening import FeedContext, open_feed
from sleeper.adjunct.updater import StoreUpdater
from sleeper.adjunct.versions.status import StoreStatus, describe_reader, describe_store
from sleeper.adjunct.versions.store import Store
from sleeper.adjunct.versions.version import StoreReader, StoreVersion
from sleeper.clock import Clock, system_clock
from sleeper.errors import SleeperError
from sleeper.instance import Instance
from sleeper.renewal import Renewal

OpenContext = Callable[[], AbstractContextManager[FeedContext]]
"""Opens what feeds need, and closes it with the store."""


@dataclass(frozen=True, slots=True)
class UpdateSettings:
    """When a store looks for new data: every `refresh_seconds`, None for only on request.

    The opening of a bootstrapped store waits for its first dataset for `bootstrap_seconds`.
    """

    refresh_seconds: float | None = 1.0
    bootstrap_seconds: float = 300.0
    clock: Clock = system_clock


class OpenStore(Protocol):
    """An open store. Any threads may call it."""

    name: str

    @property
    def serving(self) -> StoreVersion:
        """The version that serves. UnavailableError if none is complete."""

    def refresh(self) -> int:
        """Takes what the input has now. Returns the number of keys that were written.

        UnavailableError if the input does not respond.
        """

    def status(self) -> StoreStatus:
        """Returns how far the store is."""

    def close(self) -> None:
        """Ends the updates and closes the store. Idempotent."""


class FilledStore:
    """A store that this process fills. See the protocol."""

    def __init__(
        self,
        definition: StoreDefinition,
        parent: Path | None,
        settings: UpdateSettings,
        open_context: OpenContext,
    ) -> None:
        self.name = definition.name
        with ExitStack() as opened:
            self._store = Store(definition, parent, settings.clock)
            opened.callback(self._store.close)
            context = opened.enter_context(open_context())
            self.updater = StoreUpdater(self._store, open_feed(self._store, context))
            opened.callback(self.updater.stop)
            self.updater.start(settings.refresh_seconds, settings.bootstrap_seconds)
            self._opened = opened.pop_all()

    @property
    def serving(self) -> StoreVersion:
        """See the protocol."""
        return self._store.serving

    def refresh(self) -> int:
        """See the protocol."""
        return self.updater.update()

    def status(self) -> StoreStatus:
        """See the protocol."""
        return describe_store(self._store, self.updater.feed, self.updater.problem)

    def close(self) -> None:
        """See the protocol."""
        self._opened.close()


class ReadStore:
    """A store on disk that another process fills. See the protocol."""

    def __init__(self, parent: Path, name: str, refresh_seconds: float | None) -> None:
        self.name = name
        self._reader = StoreReader(parent, name)
        self._lock = Lock()
        self._problem: str | None = None
        with ExitStack() as opened:
            opened.callback(self._reader.close)
            if refresh_seconds is not None:
                what = f"refresh of adjunct store {name}"
                opened.enter_context(Renewal(what, self.refresh, refresh_seconds))
            self._opened = opened.pop_all()

    @property
    def state(self) -> StoreState | None:
        """The state of the version that serves."""
        return self._reader.state

    @property
    def serving(self) -> StoreVersion:
        """See the protocol."""
        return self._reader.serving

    def refresh(self) -> int:
        """Takes what the other process has written. Returns 0."""
        with self._lock:
            try:
                self._reader.refresh()
            except SleeperError as error:
                self._problem = str(error)
                raise
            self._problem = None
        return 0

    def status(self) -> StoreStatus:
        """See the protocol."""
        status = describe_reader(self._reader)
        return status if self._problem is None else replace(status, problem=self._problem)

    def close(self) -> None:
        """See the protocol."""
        self._opened.close()


@contextmanager
def own_instance(
    open_instance: Callable[[], Instance],
    extractors: ExtractorSource = NAMED_EXTRACTORS,
    process: DatasetProcess | None = None,
) -> Iterator[FeedContext]:
    """Yields a context whose instance is opened on first use, and closed at the end."""
    with ExitStack() as opened:

        @cache
        def get() -> Instance:
            instance = open_instance()
            opened.callback(instance.close)
            return instance

        yield FeedContext(get, extractors, process)
