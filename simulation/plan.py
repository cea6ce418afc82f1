"""What to run: a seed, or a seed from which steps and faults are left out."""

from dataclasses import dataclass

from simulation.result import FaultName
from sleeper.json_codec import JsonCodec


@dataclass(frozen=True, slots=True)
class Plan:
    """A run of a seed. `without_steps` do not run; with `faults`, only these happen."""

    seed: int
    world: str = "local"
    without_steps: tuple[str, ...] = ()
    faults: tuple[FaultName, ...] | None = None
    bug: str | None = None

    @property
    def only_faults(self) -> frozenset[tuple[int, str]] | None:
        """The faults as the world takes them."""
        if self.faults is None:
            return None
        return frozenset((each.call_number, each.kind) for each in self.faults)


PLANS = JsonCodec(Plan)
