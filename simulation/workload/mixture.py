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
# The operations of the focus are so large a part of the steps, each as often as the others.
_FOCUS_SHARE = 0.65
# Clients seldom do by hand what the instance does by itself.
_BACKGROUND_FACTOR = 0.15


def mix_operations(
    operations: Iterable[Operation], random: Random, focus: Collection[str] = ()
) -> list[Operation]:
    """Returns the operations of a history with its weights.

    Those of `focus` are most of the steps, as soon as they apply.
    """
    has_all = random.random() < 0.5
    mixture, focused = [], []
    for each in operations:
        factor = random.choice(_FACTORS)
        if each.name in focus:
            focused.append(each)
            continue
        if has_all or each.name in _NEEDED:
            factor = 1.0
        if each.is_background:
            factor *= _BACKGROUND_FACTOR
        if factor > 0:
            mixture.append(replace(each, weight=each.weight * factor))
    total = sum(each.weight for each in mixture) * _FOCUS_SHARE / (1 - _FOCUS_SHARE)
    return [*mixture, *(replace(each, weight=total / len(focused)) for each in focused)]
