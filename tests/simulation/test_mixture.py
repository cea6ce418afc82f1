"""The mixture of operations varies with the seed, keeps what all need, and has its focus."""

from random import Random

from simulation.workload.mixture import mix_operations
from simulation.workload.system_operations import OPERATIONS


def test_some_histories_leave_out_operations() -> None:
    sizes = {len(mix_operations(OPERATIONS.values(), Random(seed))) for seed in range(20)}
    assert max(sizes) == len(OPERATIONS)
    assert min(sizes) < 0.7 * len(OPERATIONS)


def test_what_all_need_is_never_left_out() -> None:
    for seed in range(20):
        names = {each.name for each in mix_operations(OPERATIONS.values(), Random(seed))}
        assert names >= {"create", "ingest_from_memory"}


def test_operations_of_the_focus_are_most_of_the_steps() -> None:
    focus = ("split", "work")
    for seed in range(20):
        mixture = mix_operations(OPERATIONS.values(), Random(seed), focus)
        focused = [each.weight for each in mixture if each.name in focus]
        assert focused[0] == focused[1]
        assert 0.6 < sum(focused) / sum(each.weight for each in mixture) < 0.7
