"""Seeds of the tests that choose at random.

The choices are the same in every run, so that a failure belongs to the change that is tested.
`SLEEPER_TEST_SEED=random` makes new choices and prints the seed; `SLEEPER_TEST_SEED=<number>`
repeats them.
"""

import os
import random

VARIABLE = "SLEEPER_TEST_SEED"
"""The environment variable that chooses: `random` or a number. Without it, choices are fixed."""


def is_fixed() -> bool:
    """Whether every run makes the same choices."""
    return VARIABLE not in os.environ


def choose_seed() -> int:
    """Returns the seed, and prints it, because pytest shows the output of a test that failed."""
    setting = os.environ.get(VARIABLE, "1")
    seed = random.SystemRandom().randrange(2**32) if setting == "random" else int(setting)
    print(f"{VARIABLE}={seed}")
    return seed
