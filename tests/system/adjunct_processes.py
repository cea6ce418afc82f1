"""Processes that fill and read an adjunct store, for tests that kill them.

Arguments: `fill STORES FOLDER STAGE` fills the store from the files of a folder and is killed at a
stage. `read STORES FILE` checks each version that it sees until the file exists.
"""

import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from sleeper.adjunct import AdjunctStore, adjunct_store
from sleeper.adjunct.engines.rocksdb import RocksDbEngine
from sleeper.adjunct.versions.folder import StoreFolder
from sleeper.adjunct.versions.store import Store
from sleeper.errors import UnavailableError

STORE = "prices"
# Between two checks of a reader, so that readers leave the processors to what they watch.
PAUSE_SECONDS = 0.02
_CALLS_BEFORE = 3


def kill_after(owner: Any, name: str, calls: int) -> None:
    """Ends the process after some calls."""
    original: Callable[..., Any] = getattr(owner, name)
    left = [calls]

    def call(*arguments: Any, **more: Any) -> Any:
        result = original(*arguments, **more)
        left[0] -= 1
        if not left[0]:
            os.kill(os.getpid(), signal.SIGKILL)
        return result

    setattr(owner, name, call)


STAGES: dict[str, Callable[[], None]] = {
    "empty-version": lambda: kill_after(StoreFolder, "new_version", 1),
    "mid-load": lambda: kill_after(RocksDbEngine, "_load", _CALLS_BEFORE),
    "building": lambda: kill_after(Store, "note_progress", 1),
    "loaded": lambda: kill_after(RocksDbEngine, "load", 1),
    "sealed": lambda: kill_after(StoreFolder, "seal", 1),
    "switched": lambda: kill_after(StoreFolder, "switch", 1),
}


def fill(stores: str, folder: str, stage: str) -> None:
    STAGES[stage]()
    if stage != "building":
        # Otherwise another process, which is not killed, builds the second version.
        adjunct_store._BUILD = ("/nonexistent",)
    AdjunctStore.open(STORE, f"files:{folder}", stores, refresh_seconds=None).refresh()


def read(stores: str, end: str) -> None:
    """Prints the number of versions that were seen. An error if one was not whole."""
    seen: set[int] = set()
    with AdjunctStore.open(STORE, path=stores) as store:
        print("reading", flush=True)
        while True:
            is_last = Path(end).exists()
            store.refresh()
            time.sleep(PAUSE_SECONDS)
            try:
                seen.add(check_version(store))
            except UnavailableError:
                continue
            if is_last:
                break
    print(len(seen))


def check_version(store: AdjunctStore) -> int:
    """Returns the number of the version that serves. AssertionError if it is not whole.

    Version n has the keys 0 to 1,000 + n, and each value is n.
    """
    rows = store.all()
    _, first = next(rows)
    version: int = first["version"]
    keys = [0, *(key for key, value in rows if value == {"version": version})]
    assert keys == list(range(1_000 + version)), (version, len(keys))
    found = store.get_many(list(range(0, 1_000, 7)))
    assert len({value["version"] for value in found}) == 1, found
    return version


if __name__ == "__main__":
    if sys.argv[1] == "fill":
        fill(*sys.argv[2:])
    else:
        read(*sys.argv[2:])
