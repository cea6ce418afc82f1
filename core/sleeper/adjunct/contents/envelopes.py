"""Envelopes as writes of a store, by an extractor or by a processor.

A *processor* sees the values that are stored, and writes any number of keys for an envelope. The
*view* that it gets for each envelope has what is stored, and what was written for the envelopes
before.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from sleeper.adjunct.contents.values import ValueCodec
from sleeper.adjunct.contents.writers import DocumentWriter
from sleeper.adjunct.definition import Layout
from sleeper.adjunct.engines.engine import Writes
from sleeper.adjunct.extraction import Envelope, Extract, Process
from sleeper.errors import InvalidRequestError, SleeperError, UserCodeError

Stored = Callable[[bytes], bytes | None]
"""Returns the bytes of the value that a version has of a key."""

_decode = ValueCodec(Layout((), None)).decode


def put_envelopes(
    convert: Extract | Process,
    envelopes: Sequence[Envelope],
    writer: DocumentWriter,
    stored: Stored,
) -> tuple[Writes, int]:
    """Returns the writes of envelopes up to the first that fails, and the number of those.

    Its error is raised if it is the first. So a feed stops at it, and skips nothing. Markers are
    passed over.
    """
    if isinstance(convert, Process):
        return _process(convert, envelopes, writer, stored)
    done = 0

    def pairs() -> Iterator[tuple[Any, Any, Envelope]]:
        nonlocal done
        for envelope in envelopes:
            if not envelope.is_end_of_dataset:
                yield (*convert(envelope), envelope)
            done += 1

    try:
        return writer.put(pairs()), len(envelopes)
    except SleeperError:
        if not done:
            raise
        return put_envelopes(convert, envelopes[:done], writer, stored)


def _process(
    process: Process, envelopes: Sequence[Envelope], writer: DocumentWriter, stored: Stored
) -> tuple[Writes, int]:
    written: dict[bytes, bytes | None] = {}
    times: dict[bytes, int | None] = {}
    for number, envelope in enumerate(envelopes):
        if envelope.is_end_of_dataset:
            continue
        view = StoreView(envelope, writer, stored, written)
        try:
            _call(process, envelope, view)
        except SleeperError:
            if not number:
                raise
            return _as_writes(written, times), number
        # Only now, so that nothing is written for an envelope that fails.
        written |= view.written
        times |= dict.fromkeys(view.written, envelope.time_ms)
    return _as_writes(written, times), len(envelopes)


def _call(process: Process, envelope: Envelope, view: "StoreView") -> None:
    try:
        process(envelope, view)
    except UserCodeError:
        view.close()
        raise
    view.close()


def _as_writes(written: dict[bytes, bytes | None], times: dict[bytes, int | None]) -> Writes:
    return Writes(list(written), list(written.values()), written_ms=list(map(times.get, written)))


class StoreView:
    """The store as a processor sees it for one envelope. It is closed with the call.

    Values are copies: a change of one must be put. An error of the store is raised again after the
    call, so that a processor which catches it writes nothing.
    """

    def __init__(
        self,
        envelope: Envelope,
        writer: DocumentWriter,
        stored: Stored,
        before: dict[bytes, bytes | None],
    ) -> None:
        self._envelope = envelope
        self._writer = writer
        self._stored = stored
        self._before = before
        self._error: SleeperError | None = None
        self._is_closed = False
        self.written: dict[bytes, bytes | None] = {}

    def get(self, key: Any) -> Any:
        """Returns the value of a key, as written by this call or before; None if there is none."""
        self._check_open()
        try:
            content = self._find(key)
        except SleeperError as error:
            self._error = error
            raise
        return None if content is None else _decode(content)

    def put(self, key: Any, value: Any) -> None:
        """Writes the value of a key. None deletes the key."""
        self._check_open()
        try:
            encoded = self._writer.encode_key(key, self._envelope)
            content = None if value is None else self._writer.encode_value(value, self._envelope)
        except SleeperError as error:
            self._error = error
            raise
        self.written[encoded] = content

    def delete(self, key: Any) -> None:
        """Deletes a key, which the store need not have."""
        self.put(key, None)

    def close(self) -> None:
        """Ends the use of the view. Raises the error of the store, if there was one."""
        self._is_closed = True
        if self._error is not None:
            raise self._error

    def _find(self, key: Any) -> bytes | None:
        if self._writer.layout() is None:
            return None  # there are no keys yet
        encoded = self._writer.encode_key(key, self._envelope)
        for written in (self.written, self._before):
            if encoded in written:
                return written[encoded]
        return self._stored(encoded)

    def _check_open(self) -> None:
        if self._is_closed:
            raise InvalidRequestError(
                f"the store was used after the call of process for {self._envelope} (expected "
                "within it)"
            )
