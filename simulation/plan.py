"""What to run: a seed, or the steps and faults of a seed that are left."""

from dataclasses import dataclass

from simulation.result import FaultName
from sleeper.json_codec import JsonCodec


@dataclass(frozen=True, slots=True)
class Plan:
    """A run of a seed. With `steps`, clients run only these; with `faults`, only these happen.

    `size` is the number of steps of all clients, random if None. The operations and kinds of faults
    of `focus` are frequent.
    """

    seed: int
    world: str = "local"
    size: int | None = None
    focus: tuple[str, ...] = ()
    steps: tuple[str, ...] | None = None
    faults: tuple[FaultName, ...] | None = None
    bug: str | None = None

    @property
    def only_faults(self) -> frozenset[tuple[str, str]] | None:
        """The faults as the world takes them."""
        if self.faults is None:
            return None
        return frozenset((each.call, each.kind) for each in self.faults)

    def has_step(self, step: str) -> bool:
        """Returns whether a client runs the step."""
        return self.steps is None or step in self.steps


PLANS = JsonCodec(Plan)
