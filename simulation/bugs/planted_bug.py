"""The declaration of a planted bug."""

from dataclasses import dataclass

from simulation.bugs.mutation import Mutation

LOCAL = ("local",)
AWS = ("aws",)
BOTH = ("local", "aws")


@dataclass(frozen=True, slots=True)
class PlantedBug:
    """A bug that the checks must find, in one of the worlds.

    `breaks` is the promise of the product that no longer holds. `rules` are the checks that may
    find it. Its histories have `size` steps, and the operations and kinds of faults
    of `focus` are frequent in them. A search gives up after `seeds_max` seeds.
    """

    name: str
    breaks: str
    mutation: Mutation
    rules: tuple[str, ...]
    worlds: tuple[str, ...] = LOCAL
    focus: tuple[str, ...] = ()
    size: int = 40
    seeds_max: int = 10

    def broken_rule(self, failure: str | None) -> str | None:
        """Returns the rule of the bug that the failure of a seed names, None if it names none."""
        first = (failure or "").partition("\n")[0]
        return next((each for each in self.rules if each in first), None)
