"""How many random examples the costly property tests try.

`SLEEPER_TEST_EXAMPLES=10` tries ten times as many, preferably with `SLEEPER_TEST_SEED=random`
(`tests/seeds.py`), since the same seed gives the same examples first.
"""

import os

VARIABLE = "SLEEPER_TEST_EXAMPLES"
"""The environment variable by which the numbers of examples are multiplied."""


def examples(count: int) -> int:
    """Returns the number of examples of a test that by default tries so many."""
    return count * int(os.environ.get(VARIABLE, "1"))
