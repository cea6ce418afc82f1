"""Checks of a folder that is to be deployed."""

import pytest

from sleeper.admin.instance_folder import InstanceFolder, TableDefinition
from sleeper.errors import InvalidRequestError
from sleeper.preflight.finding import Level, refuse_errors
from sleeper.preflight.folder import FARGATE_SIZES, check_folder, task_sizes
from sleeper.properties.values import instance_properties


def errors(tables: tuple[TableDefinition, ...] = (), **values: str) -> list[str]:
    properties = instance_properties(
        {"sleeper.id": "here"} | {f"sleeper.{k.replace('_', '.')}": v for k, v in values.items()}
    )
    findings = check_folder(InstanceFolder(properties, tables))
    return [each.message for each in findings if each.level is Level.ERROR]


def test_default_sizes_of_all_tasks_are_offered() -> None:
    stems = {stem for stem, _, _ in task_sizes(instance_properties({"sleeper.id": "here"}))}
    assert {"sleeper.ingest.task", "sleeper.compaction.task.arm", "sleeper.stash.task"} <= stems
    assert errors() == []


@pytest.mark.parametrize(
    ("cpu", "memory", "message"),
    [
        ("3000", "4096", "sleeper.ingest.task.cpu: Fargate has no task with 3000 CPU units"),
        (
            "16384",
            "4096",
            "16384 CPU units and 4096 MiB (expected 32768 to 122880 in steps of 8192",
        ),
        ("1024", "2500", "1024 CPU units and 2500 MiB (expected 2048 to 8192 in steps of 1024"),
        ("256", "1536", "256 CPU units and 1536 MiB"),
        ("256", "3072", "256 CPU units and 3072 MiB (expected 512 to 2048"),
    ],
)
def test_sizes_that_fargate_lacks_are_refused(cpu: str, memory: str, message: str) -> None:
    (error,) = errors(ingest_task_cpu=cpu, ingest_task_memory_mb=memory)
    assert message in error


@pytest.mark.parametrize("cpu", FARGATE_SIZES)
def test_the_smallest_and_largest_sizes_are_accepted(cpu: int) -> None:
    for memory in FARGATE_SIZES[cpu][:2]:
        assert errors(ingest_task_cpu=str(cpu), ingest_task_memory_mb=str(memory)) == []


def test_a_network_needs_its_subnets() -> None:
    (error,) = errors(vpc="vpc-1")
    assert error.startswith("property sleeper.subnets is not set")
    (error,) = errors(subnets="subnet-1")
    assert error.startswith("property sleeper.vpc is not set")


def test_tables_that_exceed_a_template_are_refused() -> None:
    # Many split points are an object, so they do not count.
    tables = tuple(TableDefinition(f"t{i}", "x" * 90_000, {}, "x" * 2**20) for i in range(9))
    assert errors(tables[:8]) == []
    (error,) = errors(tables)
    assert error.startswith("9 tables have 9")


def test_errors_refuse_a_deployment() -> None:
    findings = check_folder(
        InstanceFolder(instance_properties({"sleeper.id": "a", "sleeper.vpc": "v"}))
    )
    with pytest.raises(InvalidRequestError, match=r"sleeper\.subnets is not set"):
        refuse_errors(findings)
