"""What each role may do, and that it may do nothing else."""

import os

import pytest

from tests.infra.capabilities import CAPABILITIES, FORBIDDEN, in_another_instance
from tests.infra.role_table import HEADING, ROLES, role_section
from tests.infra.roles import Role, read_roles
from tests.infra.synthesis import ROOT, Synthesis
from tests.policies import Call, Statement, allows


@pytest.fixture(scope="session")
def roles(
    example: Synthesis,
    platforms: Synthesis,
    with_dashboard: Synthesis,
    athena_stack: Synthesis,
    apis: Synthesis,
) -> dict[str, Role]:
    return read_roles(example, platforms, with_dashboard, athena_stack, apis)


def test_the_table_has_all_roles(roles: dict[str, Role]) -> None:
    assert set(roles) == set(ROLES)


@pytest.mark.parametrize("name", ROLES)
def test_a_role_may_do_what_the_table_says_and_nothing_else(
    roles: dict[str, Role], name: str
) -> None:
    may = {
        capability
        for capability, calls in CAPABILITIES.items()
        if any(roles[name].may(call) for call in calls)
    }
    assert may == ROLES[name].may


def test_no_role_may_do_what_is_forbidden(roles: dict[str, Role]) -> None:
    found = [(name, c) for name, role in roles.items() for c in FORBIDDEN if role.may(c)]
    assert found == []


def test_no_role_reaches_another_instance(roles: dict[str, Role]) -> None:
    calls = [call for calls in CAPABILITIES.values() for call in calls]
    others = [other for call in calls if (other := in_another_instance(call)) != call]
    assert len(others) > 60
    assert [(name, c) for name, role in roles.items() for c in others if role.may(c)] == []


def test_every_capability_is_that_of_a_role_or_of_users(roles: dict[str, Role]) -> None:
    """Otherwise a call may have a name that no resource has, and a test that cannot fail."""
    may = {capability for role in ROLES.values() for capability in role.may}
    assert set(CAPABILITIES) - may == {"change records", "delete records", "install user code"}
    assert roles


def test_the_security_page_has_the_table(roles: dict[str, Role]) -> None:
    """APPROVE=1 writes it."""
    page = ROOT / "docs" / "security.md"
    text = page.read_text()
    start = text.index(HEADING)
    end = text.index("\n## ", start) + 1
    section = role_section(roles) + "\n"
    if os.environ.get("APPROVE") == "1":
        page.write_text(text[:start] + section + text[end:])
    else:
        assert text[start:end] == section


ONLY_POSITION = {"ForAllValues:StringEquals": {"dynamodb:Attributes": ["item", "position"]}}
IN_CLUSTER = {"ArnEquals": {"ecs:cluster": ["arn:c"]}}


@pytest.mark.parametrize(
    ("statements", "call", "is_allowed"),
    [
        ([("Allow", {})], Call("s3:GetObject", "arn:b/1/data/a"), True),
        ([("Allow", {})], Call("s3:GetObject", "arn:b/1/log/a"), False),
        ([("Allow", {})], Call("s3:PutObject", "arn:b/1/data/a"), False),
        ([("Allow", {}), ("Deny", {})], Call("s3:GetObject", "arn:b/1/data/a"), False),
        (
            [("Allow", {}), ("Deny", IN_CLUSTER)],
            Call("s3:GetObject", "arn:b/1/data/a", {"ecs:cluster": ["arn:d"]}),
            True,
        ),
        (
            [("Allow", ONLY_POSITION)],
            Call("s3:GetObject", "arn:b/1/data/a", {"dynamodb:attributes": ["item", "position"]}),
            True,
        ),
        (
            [("Allow", ONLY_POSITION)],
            Call("s3:GetObject", "arn:b/1/data/a", {"dynamodb:attributes": ["item", "head"]}),
            False,
        ),
        ([("Allow", ONLY_POSITION)], Call("s3:GetObject", "arn:b/1/data/a"), True),
        ([("Allow", IN_CLUSTER)], Call("s3:GetObject", "arn:b/1/data/a"), False),
    ],
)
def test_statements_are_evaluated_as_iam_does(
    statements: list[tuple[str, dict[str, dict[str, list[str]]]]], call: Call, is_allowed: bool
) -> None:
    parsed = [Statement(e, ["s3:Get*"], ["arn:b/?/data/*"], c) for e, c in statements]
    assert allows(parsed, call) is is_allowed
