"""Checks of what the properties and tables of a deployment say. They need no account."""

import json
from collections.abc import Iterator

from sleeper.admin.instance_folder import INLINE_POINTS_MAX, InstanceFolder
from sleeper.preflight.finding import Finding, error, passed, warning
from sleeper.properties.declaration import INSTANCE_PROPERTIES, Property
from sleeper.properties.instance import ERRORS_EMAIL, NETWORK_ENDPOINTS, SUBNETS, VPC
from sleeper.properties.values import InstanceProperties

_CPU, _MEMORY = ".cpu", ".memory.mb"
_GIB = 1024
# MiB of memory by CPU units: the smallest, the largest, the step.
FARGATE_SIZES = {
    256: (512, 2 * _GIB, 512),
    512: (1 * _GIB, 4 * _GIB, _GIB),
    1024: (2 * _GIB, 8 * _GIB, _GIB),
    2048: (4 * _GIB, 16 * _GIB, _GIB),
    4096: (8 * _GIB, 30 * _GIB, _GIB),
    8192: (16 * _GIB, 60 * _GIB, 4 * _GIB),
    16384: (32 * _GIB, 120 * _GIB, 8 * _GIB),
}
# Fargate has no 1.5 GiB with a quarter of a processor.
_NOT_WITH_256 = 1536
# A template has at most 1 MB, and other things than schemas and settings are in that of tables too.
# Many split points are an object of their own.
_TABLES_BYTES_MAX = 900_000


def check_folder(folder: InstanceFolder) -> list[Finding]:
    """Returns what a deployment of the folder would fail for."""
    return [
        *_check_tasks(folder.properties),
        *_check_network(folder.properties),
        *_check_tables(folder),
        *_check_mail(folder.properties),
    ]


def task_sizes(properties: InstanceProperties) -> Iterator[tuple[str, int, int]]:
    """Yields of each kind of task the stem of its properties, CPU units and memory in MiB."""
    declared: dict[str, Property[int]] = {each.name: each for each in INSTANCE_PROPERTIES}
    for name, units in declared.items():
        stem = name.removesuffix(_CPU)
        if stem != name and stem + _MEMORY in declared:
            yield stem, properties.get(units), properties.get(declared[stem + _MEMORY])


def _check_tasks(properties: InstanceProperties) -> Iterator[Finding]:
    sizes = list(task_sizes(properties))
    faults = [
        error("task sizes", f"property {stem}{fault}")
        for stem, units, memory in sizes
        if (fault := _size_fault(units, memory))
    ]
    yield from faults or [passed("task sizes", f"Fargate offers all {len(sizes)}")]


def _size_fault(units: int, memory: int) -> str | None:
    if units not in FARGATE_SIZES:
        expected = ", ".join(map(str, FARGATE_SIZES))
        return f"{_CPU}: Fargate has no task with {units} CPU units (expected {expected})"
    smallest, largest, step = FARGATE_SIZES[units]
    fits = smallest <= memory <= largest and memory % step == 0
    if fits and (units, memory) != (256, _NOT_WITH_256):
        return None
    return (
        f"{_MEMORY}: Fargate has no task with {units} CPU units and {memory} MiB "
        f"(expected {smallest} to {largest} in steps of {step})"
    )


def _check_network(properties: InstanceProperties) -> Iterator[Finding]:
    has_vpc, has_subnets = bool(properties.get(VPC)), bool(properties.get(SUBNETS))
    if has_vpc != has_subnets:
        unset = SUBNETS if has_vpc else VPC
        yield error(
            "network",
            f"property {unset.name} is not set: set {VPC.name} and {SUBNETS.name} together",
        )
    elif has_vpc:
        yield passed("network", f"tasks run in {properties.get(VPC)}")
    else:
        way = "interface endpoints" if properties.get(NETWORK_ENDPOINTS) else "public addresses"
        yield passed("network", f"the deployment makes one, whose tasks use {way}")


def _check_mail(properties: InstanceProperties) -> Iterator[Finding]:
    address = properties.get(ERRORS_EMAIL)
    if address:
        yield passed("alarms", f"mail to {address}")
    else:
        yield warning("alarms", f"nobody receives them: set {ERRORS_EMAIL.name}")


def _check_tables(folder: InstanceFolder) -> Iterator[Finding]:
    sizes = {
        table.name: len(json.dumps([table.schema, dict(table.settings)]))
        + min(len(table.split_points), INLINE_POINTS_MAX)
        for table in folder.tables
    }
    total = sum(sizes.values())
    if total <= _TABLES_BYTES_MAX:
        yield passed("tables", f"{len(sizes)} in the folder")
        return
    yield error(
        "tables",
        f"{len(sizes)} tables have {total:,} bytes, and a template supports "
        f"{_TABLES_BYTES_MAX:,}: create some by `sleeper table create` after the deployment",
    )
