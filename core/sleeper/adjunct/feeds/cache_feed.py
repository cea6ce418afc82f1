"""The feed of a store that keeps a part of a table in memory, and reads other keys at a miss."""

from collections.abc import Sequence

from sleeper.adjunct.contents.keys import KeyCodec
from sleeper.adjunct.definition import StoreState, decode_state, loaded_state
from sleeper.adjunct.feeds.feed import StartAction
from sleeper.adjunct.feeds.table_feed import TableFeed
from sleeper.adjunct.inputs.table import TableInput
from sleeper.adjunct.versions.store import Store
from sleeper.errors import StateMovedOnError, UnavailableError

_KEYS_MAX = 10_000


class CacheFeed(TableFeed):
    """Begins with nothing at the newest transaction, and then applies each one after it."""

    def __init__(self, store: Store, source: TableInput) -> None:
        super().__init__(store, source)
        store.read_missing = self._read_missing

    def start(self) -> StartAction:
        self._must_load = True
        return StartAction.LOAD

    def _load_newest(self) -> int:
        number = self._source.newest_number()
        shape = self._source.shape(number)

        def finish() -> StoreState:
            layout, positions = self._source.layout(number), self._source.positions(number)
            now_ms = self._store.clock()
            definition = self._store.definition
            return loaded_state(definition, now_ms, layout, positions, shape=shape.digest)

        return self._store.build((), finish)

    def _read_missing(self, keys: Sequence[bytes], content: bytes) -> list[bytes | None]:
        """Returns the values of keys at the transaction of a state.

        UnavailableError if the table does not keep that transaction any more.
        """
        name = self._store.definition.name
        state = decode_state(content, f"store {name!r}")
        assert state.layout is not None
        codec = KeyCodec(name, state.layout)
        values: dict[bytes, bytes | None] = {}
        try:
            for start in range(0, len(keys), _KEYS_MAX):
                plain = [codec.decode(each) for each in keys[start : start + _KEYS_MAX]]
                for writes in self._source.find(state.positions, plain):
                    values.update(zip(writes.keys, writes.values, strict=True))
        except StateMovedOnError as error:
            number = self._source.number_of(state.positions)
            raise UnavailableError(
                f"store {name!r}: transaction {number} cannot be read any more: {error} (expected "
                "a refresh)"
            ) from error
        return [values.get(key) for key in keys]
