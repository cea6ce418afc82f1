"""What roles did in the tests of deployed instances, held against their policies.

It is after those tests in the order of names, and in the same group of a parallel run. The emulator
records what each role does, and what its policies as deployed allow. A call that no statement
allows, and a permission that allowed no call, are failures unless they are listed here.
"""

from pathlib import Path

import pytest

from tests.infra.role_table import ROLES
from tests.policies import is_like
from tests.system.permissions_without_use import MAY_RUN, NOT_RUN, REFUSED, UNUSED
from tests.system.recorded_calls import RecordedRole, read_recorded

TESTS = {
    "test_a_client_of_the_documented_formats_reads_the_rows_it_wrote",
    "test_a_deployed_instance_ingests_splits_and_compacts",
    "test_a_scheduled_adapter_loads_a_table_another_copies_it_and_tasks_make_stashes",
    "test_commits_of_a_deployed_instance_are_exported",
    "test_the_task_fills_its_stores_when_its_service_is_created",
}


@pytest.fixture(scope="module")
def recorded(recorded_calls: Path) -> dict[str, RecordedRole]:
    """Returns what all tests of deployed instances recorded; skips if one did not run."""
    missing = TESTS - {file.stem for file in recorded_calls.glob("*.jsonl")}
    if missing:
        pytest.skip(f"these tests did not run before: {', '.join(sorted(missing))}")
    return read_recorded(sorted(recorded_calls.glob("*.jsonl")))


def test_no_call_was_refused(recorded: dict[str, RecordedRole]) -> None:
    refused = {
        (name, *call)
        for name, role in recorded.items()
        for call in role.refused
        if not any(is_like(call[1], pattern) for pattern in REFUSED)
    }
    assert refused == set()


def test_every_role_ran_except_for_those_that_are_listed(
    recorded: dict[str, RecordedRole],
) -> None:
    ran = {name for name, role in recorded.items() if role.granted}
    assert ran <= set(ROLES)
    may_run = {name for name in ROLES if any(is_like(name, each) for each in MAY_RUN)}
    listed = {name for name in ROLES if any(is_like(name, each) for each in NOT_RUN)}
    assert set(ROLES) - ran - may_run == listed - may_run


def test_every_permission_was_used_except_for_those_that_are_listed(
    recorded: dict[str, RecordedRole],
) -> None:
    unused = {(name, *each) for name, role in recorded.items() for each in role.unused}
    allowed = {each: {line for line in UNUSED if _is_about(line, each)} for each in unused}
    assert sorted(each for each, listed in allowed.items() if not listed) == []
    # How fast a test runs decides whether some are used, but not whether they are granted.
    granted = {(name, *each) for name, role in recorded.items() for each in role.granted}
    known = [line for line in UNUSED if any(_is_about(line, each) for each in granted)]
    assert [line for line in UNUSED if line not in known and line[0] not in MAY_RUN] == []


def _is_about(line: tuple[str, str, str, str], permission: tuple[str, str, str]) -> bool:
    """Returns whether a line of the table is about a role's action on a resource."""
    return all(is_like(text, line[i]) for i, text in enumerate(permission))
