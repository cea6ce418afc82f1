"""Records what later releases must not replace: `python -m tests.infra.record_release`.

Writes the identities of the resources of an instance with every optional part of this version to
`VERSION.json` in `tests/infra/releases`, with which `test_upgrades` compares later templates.
"""

import sys
import tempfile
from pathlib import Path

from sleeper import __version__
from sleeper.properties.instance import IGNORED_STACKS, OPTIONAL_STACKS, OptionalStack
from sleeper.systems import systems
from tests.infra.identities import find_identities, write_identities
from tests.infra.synthesis import Synthesis, synthesise

RELEASES = Path(__file__).parent / "releases"
_SETTINGS = """\
sleeper.id=example
sleeper.network.interface.endpoints=true
sleeper.ingest.source.bucket=my-bucket
sleeper.adjunct.stores=accounts=table:accounts
sleeper.adapter.secrets=shop/reader@db.example
"""


def synthesise_every_part(folder: Path, more_settings: str = "") -> Synthesis:
    """Returns the templates of an instance with all optional parts."""
    of_systems = (each.option for system in systems() for each in system.stacks)
    parts = {*OptionalStack, *filter(None, of_systems)} - IGNORED_STACKS
    file = folder / "instance.properties"
    stacks = f"{OPTIONAL_STACKS.name}={','.join(sorted(parts))}\n"
    file.write_text(f"{_SETTINGS}{stacks}{more_settings}")
    return synthesise(folder / "out", file)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as scratch:
        parts = find_identities(synthesise_every_part(Path(scratch)).folder)
        write_identities(parts, RELEASES / f"{__version__}.json")
    sys.stdout.write(f"recorded {__version__}\n")
