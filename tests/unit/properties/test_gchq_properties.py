"""All property names of gchq/sleeper are used, or ignored with a warning."""

import csv
from importlib import resources
from typing import Any

import pytest

from sleeper.errors import InvalidRequestError
from sleeper.properties.declaration import INSTANCE_PROPERTIES, TABLE_PROPERTIES, Property
from sleeper.properties.instance import OPTIONAL_STACKS
from sleeper.properties.values import instance_properties, table_properties
from sleeper.systems import systems

_TEXT = (resources.files("sleeper.properties") / "gchq_properties.tsv").read_text(encoding="utf-8")
_LINES = [line for line in _TEXT.splitlines() if not line.startswith("#")]
NAMES = [(java_name, name) for java_name, name, _ in csv.reader(_LINES, delimiter="\t")]
DEFAULTS = [
    (name, default)
    for java_name, name, default in csv.reader(_LINES, delimiter="\t")
    # A default that its source computes is no literal.
    if default not in {"", "null"} and not default.startswith(" +")
]
# Members of sleeper.core.properties.model.OptionalStack, 0.36.
STACKS = [
    "IngestStack",
    "IngestBatcherStack",
    "EmrServerlessBulkImportStack",
    "EmrBulkImportStack",
    "PersistentEmrBulkImportStack",
    "EksBulkImportStack",
    "EmrStudioStack",
    "BulkExportStack",
    "QueryStack",
    "WebSocketQueryStack",
    "AthenaStack",
    "KeepLambdaWarmStack",
    "CompactionStack",
    "GarbageCollectorStack",
    "PartitionSplittingStack",
    "RestApiStack",
    "DashboardStack",
    "TableMetricsStack",
]
LATER_NAMES = [
    "sleeper.bulk.import.eks.automode.nodepool.cpu.limit",
    "sleeper.bulk.import.eks.automode.nodepool.enabled",
    "sleeper.bulk.import.eks.automode.nodepool.instance.types",
    "sleeper.bulk.import.eks.job.concurrency.level",
    "sleeper.bulk.import.job.file.retention.days",
    "sleeper.default.table.query.data.engine",
    "sleeper.table.query.data.engine",
]


def _text_of_default(declared: Property[Any]) -> str:
    return "" if declared.default is None else declared.kind.format(declared.default)


def test_the_number_of_names_is_that_of_gchq_sleeper() -> None:
    assert len({name for _, name in NAMES}) == 612 + len(LATER_NAMES)
    assert {name for _, name in NAMES} > set(LATER_NAMES)


@pytest.mark.parametrize("name", ["sleeper.bulk.export.memory.mbs", "sleeper.table.data.engines"])
def test_names_that_nobody_knows_are_refused(name: str) -> None:
    with pytest.raises(InvalidRequestError, match="is not an instance property"):
        instance_properties({name: "1"})
    with pytest.raises(InvalidRequestError, match="is not a table property"):
        table_properties({name: "1"}, instance_properties({}))


def test_every_name_is_used_or_ignored_with_a_warning() -> None:
    for java_name, name in NAMES:
        declaration = INSTANCE_PROPERTIES.find(name) or TABLE_PROPERTIES.find(name)
        value = "any" if declaration is None else _text_of_default(declaration)
        if name.startswith("sleeper.table."):
            warnings = table_properties({name: value}, instance_properties({})).warnings()
        else:
            warnings = instance_properties({name: value}).warnings()
        expected = f"property {name} means nothing here, and is ignored"
        assert warnings == (() if declaration else (expected,)), (java_name, name)


@pytest.mark.parametrize(("name", "default"), DEFAULTS)
def test_a_default_of_gchq_sleeper_is_a_value_that_is_accepted(name: str, default: str) -> None:
    declaration = INSTANCE_PROPERTIES.find(name) or TABLE_PROPERTIES.find(name)
    if declaration is not None:
        declaration.parse(default)


def test_exactly_the_stack_names_of_gchq_sleeper_are_accepted() -> None:
    names = OPTIONAL_STACKS.kind.expected.removeprefix("None, or a comma-separated list of ")
    of_systems = {option for system in systems() for option in system.options}
    assert {*STACKS, "StashStack"} <= set(names.split(", ")) <= {*STACKS, *of_systems}
    for name in STACKS:
        assert OPTIONAL_STACKS.parse(name.lower()) == (name,)


def test_stacks_without_effect_cause_a_warning() -> None:
    names = "IngestStack,EmrStudioStack"
    assert instance_properties({OPTIONAL_STACKS.name: names}).warnings() == (
        "optional stack EmrStudioStack means nothing here, and is ignored",
    )


def test_the_former_name_of_a_stack_is_accepted_and_written_as_gchq_sleeper_has_it() -> None:
    stacks = OPTIONAL_STACKS.parse("GarbageCollectionStack,ingeststack")
    assert OPTIONAL_STACKS.kind.format(stacks) == "GarbageCollectorStack,IngestStack"


@pytest.mark.parametrize("text", ["None", ","])
def test_no_stack_is_written_as_a_list_that_gchq_sleeper_reads_as_empty(text: str) -> None:
    assert OPTIONAL_STACKS.parse(text) == ()
    assert OPTIONAL_STACKS.kind.format(()) == ","
