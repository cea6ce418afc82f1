"""An upgrade replaces and deletes nothing that holds data, jobs or addresses."""

from dataclasses import replace
from pathlib import Path

import pytest

from tests.infra.identities import Identity, find_changes, find_identities, read_identities
from tests.infra.record_release import RELEASES
from tests.infra.synthesis import Synthesis

ALLOWED = {
    "0.2.0": {
        # The cluster starts containers of the image with the release's code. The new cluster
        # takes jobs before CloudFormation ends the old one, whose jobs return to their queue.
        "PersistentEmr/Cluster": "replaced, because of Configurations, Steps",
    },
}
"""The changes since each release that an upgrade may make; docs/upgrades.md describes them."""


@pytest.fixture(scope="module")
def every_part(all_parts: Synthesis) -> dict[str, Identity]:
    return find_identities(all_parts.folder)


@pytest.mark.parametrize("file", sorted(RELEASES.glob("*.json")), ids=lambda file: file.stem)
def test_an_upgrade_from_a_release_changes_only_what_may_change(
    file: Path, every_part: dict[str, Identity]
) -> None:
    """A change that is not in the list is repaired, or added with its reason and documented."""
    assert find_changes(read_identities(file), every_part) == ALLOWED[file.stem]


@pytest.mark.parametrize(
    ("path", "name", "value"),
    [
        ("Network/Tasks0BA6A452", "GroupDescription", "tasks of example: no ingress"),
        ("Storage/TableDataE0AE55D0", "BucketName", "sleeper-example-data"),
        ("PersistentEmr/PartsNodesA6160D53", "VpcId", "vpc-1"),
    ],
)
def test_a_changed_property_that_replaces_a_resource_is_found(
    every_part: dict[str, Identity], path: str, name: str, value: str
) -> None:
    before = every_part[path]
    assert before.properties[name] != value
    after = replace(before, properties={**before.properties, name: value})
    changes = find_changes(every_part, {**every_part, path: after})
    assert changes == {path: f"replaced, because of {name}"}


def test_a_key_replaces_nothing(every_part: dict[str, Identity], encrypted: Synthesis) -> None:
    assert find_changes(every_part, find_identities(encrypted.folder)) == {}


def test_a_deleted_resource_is_found(every_part: dict[str, Identity]) -> None:
    kept = {path: each for path, each in every_part.items() if each.type != "AWS::SNS::Topic"}
    assert list(find_changes(every_part, kept).values()) == ["deleted"]


def test_a_moved_name_is_found(every_part: dict[str, Identity]) -> None:
    """CloudFormation creates the new resource first, which fails while the old one has the name."""
    path = next(p for p, each in every_part.items() if each.type == "AWS::Lambda::Function")
    moved = {**every_part, "Elsewhere/Function": every_part[path]}
    del moved[path]
    (change,) = find_changes(every_part, moved).items()
    assert change[0] == path
    assert "its name is that of Elsewhere/Function" in change[1]
