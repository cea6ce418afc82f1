"""The result of one seed, as one process of the system hands it to another."""

from collections.abc import Mapping
from dataclasses import dataclass

from sleeper.json_codec import JsonCodec


@dataclass(frozen=True, slots=True)
class FaultCount:
    """How often a fault happened in an operation at a call.

    For example `killed`, `ingest`, `state.commit`.
    """

    fault: str
    operation: str
    call: str
    count: int


@dataclass(frozen=True, slots=True)
class CallCount:
    """How often an operation made a call."""

    operation: str
    call: str
    count: int


@dataclass(frozen=True, slots=True)
class FaultName:
    """A fault that happened: its kind, and its call, such as `client1.12 state.commit 3`."""

    call: str
    kind: str


@dataclass(frozen=True, slots=True)
class Result:
    """What a seed did. `failure` is None, or the rule that was broken and how.

    `steps` are those of clients that ran, `operations` counts them by kind, and `trace` is the end
    of the history.
    """

    seed: int
    failure: str | None
    fingerprint: str = ""
    calls: int = 0
    virtual_seconds: int = 0
    milliseconds: int = 0
    operations: Mapping[str, int] | None = None
    faults: tuple[FaultName, ...] = ()
    fault_counts: tuple[FaultCount, ...] = ()
    call_counts: tuple[CallCount, ...] = ()
    steps: tuple[str, ...] = ()
    trace: tuple[str, ...] = ()

    @property
    def rule(self) -> str:
        """The name of the rule that was broken, by which failures of a seed are compared."""
        return (self.failure or "").partition(":")[0]


RESULTS = JsonCodec(Result)
