import itertools

from hypothesis import given
from hypothesis import strategies as st

from sleeper.partitions.partition import Partition, tree_from_split_points
from sleeper.reports.partitions import ReportedPartition, draw_tree, walk_tree
from sleeper.schema.model import Field, PrimitiveType, Schema

SCHEMA = Schema((Field("k", PrimitiveType.LONG),))


def report_tree(partitions: list[Partition]) -> list[ReportedPartition]:
    return [ReportedPartition(p, depth) for depth, p in walk_tree(partitions)]


@given(st.sets(st.integers(-1000, 1000), max_size=40), st.randoms())
def test_each_partition_is_drawn_below_its_parent(points: set[int], random) -> None:
    partitions = tree_from_split_points(SCHEMA, sorted(points))
    parents = {p.id: p.parent_id for p in partitions}
    random.shuffle(partitions)
    path: list[str] = []
    for line in draw_tree(SCHEMA, report_tree(partitions)):
        trunk = line[: len(line) - len(line.lstrip("│├└─ "))]
        partition_id = line.removeprefix(trunk).split()[0]
        del path[len(trunk) // 3 :]
        assert parents.pop(partition_id) == (path[-1] if path else None)
        path.append(partition_id)
    assert parents == {}


@given(st.sets(st.integers(-1000, 1000), min_size=1, max_size=40))
def test_lines_of_siblings_end_at_the_last_child(points: set[int]) -> None:
    lines = draw_tree(SCHEMA, report_tree(tree_from_split_points(SCHEMA, sorted(points))))
    for above, below in itertools.pairwise(lines):
        for i in range(0, len(below) - len(below.lstrip("│├└─ ")), 3):
            starts = below[i] in "│├└" and (len(above) <= i or above[i] not in "│├")
            # A line starts directly below the id of its partition.
            assert not starts or len(above) - len(above.lstrip("│├└─ ")) == i
    assert lines[-1].lstrip("│ ").startswith("└─")


def test_leaves_are_drawn_in_key_order() -> None:
    partitions = tree_from_split_points(SCHEMA, range(10, 200, 10))
    leaves = [p for _, p in walk_tree(partitions) if p.is_leaf]
    assert leaves == sorted(leaves, key=lambda p: p.region.ranges[0].min)


def test_trees_deeper_than_the_python_stack_are_drawn() -> None:
    (root,) = tree_from_split_points(SCHEMA, [])
    chain = [root]
    for i in range(3000):
        chain.append(Partition(f"p{i}", root.region, chain[-1].id))  # type: ignore[arg-type]
    assert [depth for depth, _ in walk_tree(chain)] == list(range(3001))
    assert len(draw_tree(SCHEMA, report_tree(chain))) == 3001


def test_bar_lengths_are_proportional_to_rows() -> None:
    partitions = tree_from_split_points(SCHEMA, [0, 10])
    leaves = [p for _, p in walk_tree(partitions) if p.is_leaf]
    rows = dict(zip((p.id for p in leaves), (100, 50, 1), strict=True))
    tree = [
        ReportedPartition(p, depth, rows.get(p.id, 0), 0, 1 if p.is_leaf else 0)
        for depth, p in walk_tree(partitions)
    ]
    assert [line.count("█") for line in draw_tree(SCHEMA, tree) if "█" in line] == [20, 10, 1]
