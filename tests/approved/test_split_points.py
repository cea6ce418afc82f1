"""Split points of a leaf: keys of its files in, split points out.

A case says how many parts are wanted of which range, then for each file its rows in the
leaf and keys at evenly spaced ranks.
"""

from sleeper.datafiles.leaf_keys import FileKeys, LeafEstimate, split_points
from sleeper.partitions.region import Range
from tests.approved.approval import check_approved

_CASES = """
2 parts of 0 to 100: one file is cut at its median
100 rows: 10 20 30 40 50 60 70 80

4 parts of 0 to 100: several parts are alike
100 rows: 10 20 30 40 50 60 70 80

2 parts of 0 to 100: files weigh by their rows, however many keys were seen of them
1000 rows: 80 85 90 95
10 rows: 1 2 3 4 5 6 7 8 9 10

2 parts of 0 to 100: files without rows here weigh nothing
0 rows:
100 rows: 10 20 30 40

2 parts of 0 to 100: one key cannot be cut
100 rows: 50 50 50 50

2 parts of 0 to 100: nor can the smallest key there is
100 rows: 0 0 0 0

2 parts of 0 to 100: a key with most rows is cut off from those below it
100 rows: 10 50 50 50 50 50

2 parts of 0 to 100: the lowest key with most rows is cut off from those above it
100 rows: 50 50 50 50 50 90

8 parts of 0 to 100: no more cuts than there are keys
100 rows: 10 10 10 20 20 20 30 30

4 parts of 0 to 100: no keys
"""


def test_split_points_of_a_leaf() -> None:
    texts = [_decided(case.strip().splitlines()) for case in _CASES.strip().split("\n\n")]
    check_approved("split-points.text", "\n\n".join(texts) + "\n")


def _decided(lines: list[str]) -> str:
    expected, *files = lines
    words = expected.partition(":")[0].split()
    within = Range(int(words[3]), int(words[5]))
    keys = []
    for line in files:
        rows, _, points = line.partition(" rows:")
        keys.append(FileKeys(float(rows), (tuple(int(p) for p in points.split()),)))
    estimate = LeafEstimate(round(sum(k.rows for k in keys)), tuple(keys))
    cuts = split_points(estimate, within, 0, int(words[0]))
    return "\n".join([*lines, f"  -> {' '.join(map(str, cuts)) or 'no cut'}"])
