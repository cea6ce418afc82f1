"""Finds the beginning of the newest complete dataset of a log."""

from collections.abc import Iterable, Mapping

from sleeper.adjunct.envelope import Envelope
from sleeper.adjunct.inputs.log import FINISHED, LogBatch


class Alignment:
    """Reads the markers of a log from some positions on, without the messages between them.

    If `is_whole`, a dataset begins at the positions. Otherwise the messages up to the first marker
    that all partitions have may lack some.
    """

    def __init__(
        self, positions: Mapping[str, str], is_whole: bool, markers: Iterable[Envelope] = ()
    ) -> None:
        self.positions = dict(positions)
        self._first = dict(positions) if is_whole else None
        self._found: dict[str, dict[str, str]] = {}
        for marker in markers:
            self._note(marker)

    def add(self, batch: LogBatch) -> None:
        """Takes the markers of a batch."""
        self.positions |= batch.positions
        for envelope in batch.envelopes:
            if envelope.is_end_of_dataset:
                self._note(envelope)

    def find_start(self, partitions: Iterable[str]) -> tuple[str | None, dict[str, str]] | None:
        """Returns the name of the dataset before the newest complete one, and where that ended.

        If no dataset is complete, it is the one before the next, and None if there is none. Its
        name is None at the beginning of a log. Partitions that were closed before have no marker.
        """
        found = [self._found.get(each, {}) for each in partitions]
        common = [each for each in (found[0] if found else ()) if all(each in f for f in found)]
        if len(common) < 2 and self._first is not None:
            return None, self._first
        if not common:
            return None
        name = common[-2] if len(common) > 1 else common[0]
        after = {p: names[name] for p, names in self._found.items() if name in names}
        done = {p: at for p, at in self.positions.items() if at == FINISHED}
        return name, done | after

    def _note(self, marker: Envelope) -> None:
        # The last one of a repeated marker counts.
        names = self._found.setdefault(marker.partition, {})
        names[str(marker.value)] = marker.next_offset
