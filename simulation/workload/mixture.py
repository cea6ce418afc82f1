"""How often each operation happens in a history.

Half of the seeds leave out a random half of the operations and make others more frequent. Such
histories reach states that one mixture of everything seldom reaches, because operations hinder each
other: a queue that is drained all the time never grows long.
"""

from collections.abc import Collection, Iterable
from dataclasses import replace
from random import Random

from simulation.workload.registry import Operation

# Without them nothing else applies.
_NEEDED = ("create", "ingest_from_memory")
_FACTORS = (0.0, 0.0, 0.0, 0.5, 1.0, 4.0)
_FOCUS_FACTOR = 6.0
# Clients seldom do by hand what the instance does by itself.
_BACKGROUND_FACTOR = 0.15


def mix_operations(
    operations: Iterable[Operation], random: Random, focus: Collection[str] = ()
) -> list[Operation]:
    """Returns the operations of a history with its weights. Those of `focus` are frequent."""
    has_all = random.random() < 0.5
    mixture = []
    for each in operations:
        factor = random.choice(_FACTORS)
        if has_all or each.name in (*_NEEDED, *focus):
            factor = max(factor, 1.0) if each.name in focus else 1.0
        if each.name in focus:
            factor *= _FOCUS_FACTOR
        elif each.is_background:
            factor *= _BACKGROUND_FACTOR
        if factor > 0:
            mixture.append(replace(each, weight=each.weight * factor))
    return mixture
