"""Templates as tests look at them."""

import json
import os
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

# The Node release is the deployer's choice.
os.environ.setdefault("JSII_SILENCE_WARNING_END_OF_LIFE_NODE_VERSION", "18,20,22")

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "docs" / "examples" / "deploy" / "instance.properties"
Resource = dict[str, Any]
SECRET = "arn:aws:secretsmanager:eu-west-2:123456789012:secret:shop-AbCdEf"
RECEIVER = "arn:aws:sqs:eu-west-2:123456789012:searches.fifo"
KEY, FORMER_KEY = (f"arn:aws:kms:eu-west-2:123456789012:key/{name}" for name in ("k-1", "k-0"))
GROUP = "sg-0123456789abcdef0"
PLATFORM_STACKS = {
    "EmrServerless": "EmrServerlessBulkImportStack",
    "Emr": "EmrBulkImportStack",
    "PersistentEmr": "PersistentEmrBulkImportStack",
    "Eks": "EksBulkImportStack",
    "BulkExport": "BulkExportStack",
    "Adapters": "AdapterStack",
    "Stash": "StashStack",
    "Iceberg": "IcebergStack",
    "ExportQueues": "ExportQueueStack",
    "Adjunct": "AdjunctStack",
}


@dataclass(frozen=True)
class Synthesis:
    """A folder of templates."""

    folder: Path

    @cached_property
    def templates(self) -> dict[str, Resource]:
        """By the name of the concern; the one they are nested in is `Instance`."""
        results = {}
        for path in sorted(self.folder.glob("*.template.json")):
            stem = path.name.split(".")[0]
            nested = ".nested." in path.name
            concern = stem.removeprefix("sleeperexample")[:-8] if nested else "Instance"
            results[concern] = json.loads(path.read_text())
        return results

    def of_type(self, kind: str) -> dict[str, Resource]:
        """Resources of a type, in all templates, by template and logical id."""
        return {
            f"{concern}/{logical_id}": resource
            for concern, template in self.templates.items()
            for logical_id, resource in template["Resources"].items()
            if resource["Type"] == kind
        }

    def properties(self, kind: str) -> list[Resource]:
        """Returns the properties of the resources of a type."""
        return [resource["Properties"] for resource in self.of_type(kind).values()]

    def find_named(self, kind: str, name: str, value: str) -> Resource:
        """The one resource of a type whose property has that value."""
        (result,) = (p for p in self.properties(kind) if p.get(name) == value)
        return result

    def statements(self) -> Iterator[tuple[str, Resource]]:
        """Every statement of every policy, with where it is."""
        for concern, template in self.templates.items():
            for logical_id, resource in template["Resources"].items():
                for document in _documents(resource.get("Properties", {})):
                    for statement in document["Statement"]:
                        yield f"{concern}/{logical_id}", statement


def synthesise(folder: Path, instance_file: Path | None = EXAMPLE, **context: str) -> Synthesis:
    """Templates of a folder of properties, with functions' code left out."""
    from app import make_app

    settings = {
        **json.loads((ROOT / "cdk.json").read_text())["context"],
        "aws:cdk:bundling-stacks": [],
        "instance": str(instance_file or ""),
        **context,
    }
    make_app(settings, str(folder)).synth()
    return Synthesis(folder)


def as_list(value: Any) -> list[Any]:
    """Wraps a single value, which CloudFormation accepts as a list of one."""
    return value if isinstance(value, list) else [value]


def _documents(value: Any) -> Iterator[Resource]:
    if isinstance(value, dict):
        if "Statement" in value and "Version" in value:
            yield value
        for item in value.values():
            yield from _documents(item)
    elif isinstance(value, list):
        for item in value:
            yield from _documents(item)
