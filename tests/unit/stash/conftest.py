"""An instance with tables of known rows, and a destination."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

import sleeper
from sleeper.api import Instance
from sleeper.clock import system_clock
from sleeper.instance import Instance as Ports
from sleeper.stash.layout import StashFormat
from sleeper.stash.run import StashResult, run_stash

SCHEMA = {
    "rowKeyFields": [{"name": "k", "type": "LongType"}],
    "valueFields": [{"name": "v", "type": "StringType"}],
}


class Stasher:
    """Makes stashes of an instance."""

    def __init__(self, folder: Path, **properties: str) -> None:
        properties = {"sleeper.engine.threads": "2", **properties}
        self.instance: Instance = sleeper.create_instance(folder / "instance", properties)
        self.destination = str(folder / "stash")
        self.format = StashFormat.JSON
        self.seconds_between_runs = 1
        self._offset_ms = 0

    def run(
        self,
        *tables: str,
        atomic: bool = False,
        piece_bytes: int = 2**30,
        exclude: Sequence[str] = (),
    ) -> StashResult:
        """Makes a stash. Its clock is ahead, so that the name of the second is free."""
        return run_stash(
            self.ports(),
            self.destination,
            tables,
            atomic,
            piece_bytes,
            format=self.format,
            exclude=exclude,
        )

    def ports(self) -> Ports:
        """Returns the instance's ports, with a clock that is a second ahead of the last one."""
        self._offset_ms += 1000 * self.seconds_between_runs
        return replace(self.instance._ports, clock=lambda: system_clock() + self._offset_ms)

    def pass_time(self, minutes: int) -> None:
        """Sets the clock of later ports ahead."""
        self._offset_ms += 60_000 * minutes

    @property
    def root(self) -> Path:
        """The latest root."""
        place = Path(self.destination)
        return place / (place / "_LATEST").read_text()


@pytest.fixture
def stasher(tmp_path: Path) -> Iterator[Stasher]:
    stasher = Stasher(tmp_path)
    with stasher.instance:
        yield stasher
