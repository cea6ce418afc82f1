"""Plans of full table scans: files that SQL reads entirely or in part."""

import itertools
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from sleeper.files import DataFile, bounds_region
from sleeper.partitions.region import Range, Region, covers, join_regions
from sleeper.query.sql.plan import plan_table
from sleeper.schema.model import Field, PrimitiveType, Schema
from tests.tables.data_table import DataTable

SCHEMA = Schema((Field("a", PrimitiveType.INT),))

ends = st.tuples(st.integers(0, 4), st.integers(1, 3)).map(lambda e: Range(e[0], e[0] + e[1]))
boxes = st.tuples(ends, ends).map(Region)


@given(st.lists(boxes, max_size=6), boxes)
def test_regions_cover_a_box_if_they_contain_its_keys(regions: list[Region], box: Region):
    keys = [k for k in itertools.product(range(8), repeat=2) if box.contains(k)]
    is_covered = all(any(r.contains(k) for r in regions) for k in keys)
    assert covers(regions, box) == is_covered


@given(st.lists(st.integers(0, 9), unique=True))
def test_joined_regions_contain_the_same_keys(starts: list[int]):
    regions = [Region((Range(s, s + 1),)) for s in starts]
    joined = join_regions(regions)
    assert [k for k in range(11) if any(r.contains((k,)) for r in joined)] == sorted(starts)
    assert len(joined) == sum(s - 1 not in starts for s in starts)


def test_bounds_region_contains_the_largest_key():
    highest = 2**31 - 1
    for largest in (5, highest):
        region = bounds_region(SCHEMA, DataFile("f", 1, 1, (1,), (largest,)))
        assert region.contains((1,))
        assert region.contains((largest,))
        assert not region.contains((0,))
    assert not covers(
        [Region((Range(1, 5),))], bounds_region(SCHEMA, DataFile("f", 1, 1, (1,), (5,)))
    )


def test_files_are_read_whole_until_a_compaction_replaces_rows(tmp_path: Path):
    table = DataTable(tmp_path, SCHEMA, [10, 20])
    for start in range(3):
        table.add_rows([(n,) for n in range(start, 30)])

    def groups() -> list[tuple[int, tuple[Region, ...] | None]]:
        with table.store.reading() as state:
            plan = plan_table(SCHEMA, state)
        return sorted(((len(g.paths), g.regions) for g in plan.groups), key=lambda g: -g[0])

    assert groups() == [(3, None)]
    table.compact_partition(table.leaves()[1])
    middle = table.leaves()[1].region.ranges[0]
    remainder = (Region((Range(-(2**31), middle.min),)), Region((Range(middle.max, None),)))
    assert groups() == [(3, remainder), (1, None)]
