"""Selection of files to compact together: files in, jobs out.

A case is a line of settings, then a line for each leaf: its files as rows, with `*` and a
job's name where they are assigned.
"""

from sleeper.compaction.strategy import (
    Selector,
    StrategySettings,
    basic_groups,
    cost_groups,
    select,
    size_ratio_groups,
)
from sleeper.partitions.partition import PartitionId
from sleeper.statestore.reading.file_queries import PartitionFile
from tests.approved.approval import check_approved

_STRATEGIES = {"basic": basic_groups, "cost": cost_groups, "ratio": size_ratio_groups}

_CASES = """
ratio 12 files, limit 100: small files of a leaf become one job
a: 10 10 10 10
b: 10 10 10
c: 1000 10 10 10 10

ratio 12 files, limit 100: a large file waits until others together have thrice its rows
a: 100 30 10 3
a: 100 100 100 100

ratio 4 files, limit 100: more files than a job takes become several jobs
a: 10 10 10 10 20 20 20 20 1

ratio 4 files, limit 100, 2 jobs a leaf: jobs that run count
a: 10 10 10 10 20 20 20 20 5*j1 5*j1
b: 10 10 10 10 5*j1 5*j2

cost 12 files, limit 100: a partition has at most 12 files, of which a new one is one
a: 10 10 10 10 10 10 10 10 10 10 10
b: 10 10 10 10 10 10 10 10 10 10 10 10

cost 12 files, limit 100: a file waits until the smaller ones are worth its rows
a: 120 10 10 10 10 10 10 10 10 10 10
a: 120 60 10 10 10 10 10 10 10 10 10
a: 7000 120 110 100 90 80 70 60 50 40 30 20

basic 3 files, limit 100: only full groups
a: 9 1 5 3 7 2 8
b: 4 4

basic 2 files, limit 3: the leaves with the most free files come first
a: 1 1
b: 1 1 1 1 1
c: 1 1 1 9*j1 9*j1 9*j1
d: 1 1 1

basic 2 files, limit 0: nothing while as many jobs run as may
a: 1 1 1 1

basic 2 files, limit 100: a file alone and assigned files are left
a: 1 7*j1 7*j1
b:
"""


def test_selection_of_files() -> None:
    texts = [_decided(case.strip().splitlines()) for case in _CASES.strip().split("\n\n")]
    check_approved("selection.text", "\n\n".join(texts) + "\n")


def _decided(lines: list[str]) -> str:
    settings, *leaves = lines
    words = settings.partition(":")[0].replace(",", "").split()
    most = int(words[words.index("jobs") - 1]) if "jobs" in words else None
    selector = Selector(words[0], _STRATEGIES[words[0]], StrategySettings(int(words[1]), 3, most))
    result = select(map(_leaf, leaves), selector, int(words[words.index("limit") + 1]))
    jobs = [f"  -> {s.partition_id}: {' '.join(s.inputs)}" for s in result] or ["  -> nothing"]
    return "\n".join([settings, *leaves, *jobs])


def _leaf(line: str) -> tuple[PartitionId, list[PartitionFile]]:
    name, _, files = line.partition(":")
    result = []
    for place, text in enumerate(files.split()):
        rows, _, job = text.partition("*")
        path = f"{rows}({place + 1})"
        result.append(PartitionFile(path, int(rows), job or None, 100, int(rows)))
    return PartitionId(name), result
