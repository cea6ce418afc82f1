"""A process that fills a store, and hangs at a step of it until it is killed.

Arguments: the folder of stores, the instance, and the step: `module:class.method`, `!` for after
it, and the number of the call.
"""

import importlib
import sys
import time
from pathlib import Path
from typing import Any

from sleeper.adjunct import AdjunctStore

HANGS = "hangs"


def hang_at(step: str, call: int) -> None:
    """Makes the method print a line at that call, and never return."""
    place, is_after = step.removesuffix("!"), step.endswith("!")
    module, _, method = place.partition(":")
    owner, _, name = method.partition(".")
    found = getattr(importlib.import_module(module), owner)
    real, calls = getattr(found, name), 0

    def replaced(*arguments: Any, **named: Any) -> Any:
        nonlocal calls
        calls += 1
        result = real(*arguments, **named) if is_after or calls < call else None
        while calls == call:
            print(HANGS, flush=True)
            time.sleep(10**6)
        return result

    setattr(found, name, replaced)


if __name__ == "__main__":
    folder, instance, step, call = sys.argv[1:]
    hang_at(step, int(call))
    AdjunctStore.open("accounts", "table:accounts", Path(folder), instance=instance)
    print("open", flush=True)
