"""Writes `simulation/services/functions.json`: `python -m tests.infra.simulated_functions`."""

import json
import tempfile
from pathlib import Path
from typing import Any

from simulation.services.templates import read_functions
from tests.infra.synthesis import ROOT, synthesise

FILE = ROOT / "simulation" / "services" / "functions.json"
_STACKS = (
    "IngestStack",
    "IngestBatcherStack",
    "CompactionStack",
    "GarbageCollectorStack",
    "PartitionSplittingStack",
    "QueryStack",
    "BulkExportStack",
    "AdapterStack",
    "StashStack",
    "ExportQueueStack",
)


def synthesised_functions(folder: Path) -> dict[str, Any]:
    """Returns the functions of an instance with all systems that need no cluster."""
    file = folder / "instance.properties"
    file.write_text(f"sleeper.id=x\nsleeper.optional.stacks={','.join(_STACKS)}\n")
    synthesise(folder / "out", file)
    paths = sorted((folder / "out").glob("*.template.json"))
    return read_functions({p.name: json.loads(p.read_text()) for p in paths}, "sleeper-x-")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as temporary:
        FILE.write_text(json.dumps(synthesised_functions(Path(temporary)), indent=1) + "\n")
