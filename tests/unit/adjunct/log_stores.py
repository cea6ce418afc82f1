"""Stores that are filled from a log in memory."""

from pathlib import Path
from typing import Any

from sleeper.adjunct.definition import EngineType, Partition, StoreDefinition, StoreState
from sleeper.adjunct.extraction import Extract, Process, own_pair
from sleeper.adjunct.feeds.log_dataset_feed import LogDatasetFeed
from sleeper.adjunct.feeds.log_feed import LogFeed
from sleeper.adjunct.inputs.log import LogInput
from sleeper.adjunct.versions.store import Store
from tests.fake_log import FakeLog, FakeLogInput


class LogStore:
    """A store with the feed of a log. `now_ms` is its clock."""

    def __init__(
        self,
        folder: Path | None,
        source: FakeLog | LogInput,
        *,
        is_bounded: bool = False,
        bootstrap: bool = True,
        kind: EngineType = EngineType.ROCKSDB,
        partition: Partition | None = None,
        is_fixed: bool = True,
        now_ms: int = 1_000,
        ttl_ms: int | None = None,
        convert: Extract | Process = own_pair,
    ) -> None:
        self.now_ms = now_ms
        definition = StoreDefinition(
            "words",
            "kafka://b/t",
            kind,
            bootstrap=bootstrap,
            partition=partition,
            ttl_ms=ttl_ms,
        )
        self.store = Store(definition, folder, lambda: self.now_ms)
        self.input = (
            FakeLogInput(source, is_fixed=is_fixed) if isinstance(source, FakeLog) else source
        )
        make = LogDatasetFeed if is_bounded else LogFeed
        self.feed: LogFeed | LogDatasetFeed = make(self.store, self.input, convert)
        self.action = self.feed.start()

    def update(self) -> dict[Any, Any]:
        """Updates the store and returns its content."""
        self.feed.update()
        return self.content()

    def content(self) -> dict[Any, Any]:
        return dict(self.store.serving.scan())

    @property
    def state(self) -> StoreState:
        return self.store.serving.state

    def close(self) -> None:
        self.feed.close()
        self.store.close()
