"""The records of an instance's stashes: `stashes/<destination's digest>/<root name>`."""

import hashlib

from sleeper.storage.location import DataRoot

STASHES_FOLDER = "stashes"


def claim_root(own: DataRoot, destination: str, name: str) -> bool:
    """Claims the name of a root for this stash. Returns False if another stash has it."""
    digest = hashlib.sha256(destination.encode()).hexdigest()[:16]
    return own.create(f"{STASHES_FOLDER}/{digest}/{name}", f"{destination}\n".encode())
