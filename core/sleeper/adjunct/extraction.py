"""Envelopes, which are messages of an input with their place in it, and extractors of their data.

An extractor is an object of the user, which makes a key and a value of an envelope. A *processor*
is an extractor that instead reads and writes the store itself. Its *factory* makes either from the
store's configuration. All are given to a store as Python objects, or by name: a
name that a wheel of the instance registers, or `module:object` in a process that allows imports by
name.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeGuard, runtime_checkable

from sleeper.errors import SleeperError, UserCodeError
from sleeper.instance import Instance
from sleeper.user_code.calls import contain_errors, may_be_interrupt
from sleeper.user_code.named import import_named, is_module_object
from sleeper.user_code.wheel import CodeKind


@dataclass(frozen=True, slots=True)
class Envelope:
    """One message of a partition of a stream, with its key and value decoded.

    `offset` is its place in the partition, and `next_offset` the position after it, which a store
    saves. With `is_end_of_dataset`, it is the marker that ends a dataset, and `value` its name.
    `time_ms` is when it was sent, in milliseconds since 1970, None if that is not known.
    """

    stream: str
    partition: str
    offset: str
    next_offset: str
    key: Any
    value: Any
    is_end_of_dataset: bool = False
    time_ms: int | None = field(default=None, compare=False)

    def __str__(self) -> str:
        return f"{self.stream}, partition {self.partition}, offset {self.offset}"


Extract = Callable[[Envelope], tuple[Any, Any]]
"""Returns the key and the value of an envelope."""


@runtime_checkable
class KeyValueExtractor(Protocol):
    """Makes keys and values of envelopes. One thread at a time calls it.

    The value of an envelope that deletes its key is None, and only `get_key` is called then.
    """

    def get_key(self, envelope: Envelope) -> Any:
        """Returns an integer, text, bytes, or a tuple of them. None ignores the envelope."""

    def get_value(self, envelope: Envelope) -> Any:
        """Returns a mapping, text, number or bytes. None deletes the key."""


class ProcessedStore(Protocol):
    """The store as a processor sees it for one envelope."""

    def get(self, key: Any) -> Any:
        """Returns the value of a key, None if there is none."""

    def put(self, key: Any, value: Any) -> None:
        """Writes the value of a key. None deletes the key."""

    def delete(self, key: Any) -> None:
        """Deletes a key."""


class Processor(Protocol):
    """Reads and writes the store for each envelope of a stream. One thread at a time calls it.

    What it writes is saved together with the position after the envelope, so each envelope counts
    once. After a failure the next process goes on there, with another processor object.
    """

    def process(self, envelope: Envelope, store: ProcessedStore) -> None:
        """Reads and writes any keys. The value of an envelope that deletes its key is None."""


@dataclass(frozen=True, slots=True)
class Process:
    """Calls a processor. Its errors are UserCodeError, which names it and the envelope."""

    where: str
    processor: Processor

    def __call__(self, envelope: Envelope, store: ProcessedStore) -> None:
        try:
            self.processor.process(envelope, store)
        except BaseException as error:
            raise _failure(self.where, envelope, error) from error


@runtime_checkable
class KeyValueExtractorFactory(Protocol):
    """Makes extractors."""

    def get_extractor(self, config: Mapping[str, str]) -> KeyValueExtractor | Processor:
        """Returns an extractor or processor for a store with the configuration."""


@dataclass(frozen=True, slots=True)
class ExtractorSource:
    """Where a process finds extractors.

    `object` is an extractor, a factory, or the class of one; None if stores name theirs. `config`
    is passed to factories. With `allows_imports`, a name may be `module:object`.
    """

    object: Any = None
    config: Mapping[str, str] = field(default_factory=dict)
    allows_imports: bool = False


NAMED_EXTRACTORS = ExtractorSource()
"""Extractors that a wheel of the instance registers, without configuration."""


def own_pair(envelope: Envelope) -> tuple[Any, Any]:
    """Returns the envelope's own key and value."""
    return envelope.key, envelope.value


def open_extract(
    store: str, name: str | None, source: ExtractorSource, open_instance: Callable[[], Instance]
) -> Extract | Process | None:
    """Returns what calls the store's extractor or processor; None if it has neither.

    InvalidRequestError if its name is not known, UserCodeError if it cannot be constructed.
    """
    if name is None:
        return None
    where = f"store {store!r}: extractor {name!r}"
    made = source.object
    if made is None:
        if is_module_object(name):
            made = import_named(where, name, source.allows_imports)
        else:
            made = open_instance().code.load(CodeKind.EXTRACTOR, name)
    extractor = _construct(where, made, source.config)
    if _is_processor(extractor):
        return Process(where, extractor)

    def extract(envelope: Envelope) -> tuple[Any, Any]:
        try:
            key = extractor.get_key(envelope)
            if key is None or envelope.value is None:
                return key, None
            return key, extractor.get_value(envelope)
        except BaseException as error:
            raise _failure(where, envelope, error) from error

    return extract


def _failure(where: str, envelope: Envelope, error: BaseException) -> UserCodeError:
    """Returns the error of user code that failed. Raises what may be an interrupt."""
    if may_be_interrupt(error):
        raise error
    # The type of an error from user code says nothing about a retry.
    return UserCodeError(f"{where} failed for {envelope}: {type(error).__name__}: {error}")


def _construct(where: str, made: Any, config: Mapping[str, str]) -> Any:
    with contain_errors(
        lambda why: UserCodeError(f"{where} cannot be constructed: {why}"), passed=(SleeperError,)
    ):
        if isinstance(made, type):
            made = made()
        if isinstance(made, KeyValueExtractorFactory):
            made = made.get_extractor(config)
    if not _is_processor(made) and not _is_extractor(made):
        raise UserCodeError(
            f"{where} has no methods get_key(envelope) and get_value(envelope), and no method "
            "process(envelope, store)"
        )
    return made


def _is_extractor(made: Any) -> TypeGuard[KeyValueExtractor]:
    return all(callable(getattr(made, name, None)) for name in ("get_key", "get_value"))


def _is_processor(made: Any) -> TypeGuard[Processor]:
    return callable(getattr(made, "process", None))
