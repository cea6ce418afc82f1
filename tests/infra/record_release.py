"""Records what later releases upgrade: `python -m tests.infra.record_release`.

Writes to `tests/infra/releases`:

- `VERSION.json`: the identities of the resources of an instance with every optional part of this
  version, with which `test_upgrades` compares later templates
- `VERSION.tar.xz`: the templates and the code of two instances, which
  `tests/system/test_instance_lifecycle.py` deploys and upgrades. Only the last one is used
"""

import json
import sys
import tarfile
import tempfile
from collections.abc import Iterator
from pathlib import Path

from sleeper import __version__
from sleeper.properties.instance import ID, IGNORED_STACKS, OPTIONAL_STACKS, OptionalStack
from sleeper.systems import systems
from tests.infra.identities import find_identities, write_identities
from tests.infra.synthesis import Synthesis, synthesise

RELEASES = Path(__file__).parent / "releases"
IDS = ("sales", "sales-eu")
"""The instances of the archive, whose ids begin alike."""
LIFECYCLE_PARTS = (
    "IngestStack",
    "IngestBatcherStack",
    "CompactionStack",
    "GarbageCollectionStack",
    "PartitionSplittingStack",
    "QueryStack",
)
"""Their parts."""
_SCHEMA = """
{"rowKeyFields": [{"name": "k", "type": "LongType"}],
 "sortKeyFields": [{"name": "at", "type": "LongType"}],
 "valueFields": [
  {"name": "time", "type": "TimestampType"},
  {"name": "name", "type": "StringType", "nullable": true},
  {"name": "share", "type": "DoubleType"},
  {"name": "count", "type": "IntType"},
  {"name": "flag", "type": "BooleanType"},
  {"name": "day", "type": "DateType"},
  {"name": "price", "type": {"DecimalType": {"precision": 12, "scale": 2}}},
  {"name": "bytes", "type": "ByteArrayType"},
  {"name": "tags", "type": {"ListType": {"elementType": "StringType"}}},
  {"name": "counts", "type": {"MapType": {"keyType": "StringType", "valueType": "LongType"}}}]}
"""
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


def define_lifecycle_folder(folder: Path, instance: str, *parts: str) -> Path:
    """Writes the folder of an instance of the archive; returns its file of properties."""
    table = folder / "tables" / "rows"
    table.mkdir(parents=True, exist_ok=True)
    (table / "schema.json").write_text(_SCHEMA)
    (table / "table.properties").write_text("")
    (table / "splits.txt").write_text("500\n")
    file = folder / "instance.properties"
    file.write_text(f"{ID.name}={instance}\n{OPTIONAL_STACKS.name}={','.join(parts)}\n")
    return file


def write_archive(file: Path, folder: Path) -> None:
    """Writes the templates of the instances, and the code of their functions."""
    # As the test deploys them.
    from tests.system.deployed import synthesise as synthesise_for_emulator

    with tarfile.open(file, "w:xz", preset=9) as archive:
        for instance in IDS:
            properties = define_lifecycle_folder(folder / instance, instance, *LIFECYCLE_PARTS)
            output = folder / "out" / instance
            synthesise_for_emulator(properties, output, lambda_platform="code")
            for each in _deployed_files(output):
                archive.add(each, each.relative_to(output.parent), filter=_without_origin)


def _deployed_files(output: Path) -> Iterator[Path]:
    (manifest,) = output.glob("*.assets.json")
    yield manifest
    for asset in json.loads(manifest.read_text())["files"].values():
        source = output / asset["source"]["path"]
        yield from sorted(source.rglob("*.*")) if source.is_dir() else [source]


def _without_origin(member: tarfile.TarInfo) -> tarfile.TarInfo:
    return member.replace(uid=0, gid=0, uname="", gname="")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as scratch:
        parts = find_identities(synthesise_every_part(Path(scratch)).folder)
        write_identities(parts, RELEASES / f"{__version__}.json")
        write_archive(RELEASES / f"{__version__}.tar.xz", Path(scratch))
    sys.stdout.write(f"recorded {__version__}\n")
