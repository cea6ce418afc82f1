"""The policy for readers, except for its effect (tests/system/test_stash_policy.py)."""

import json

import pytest
from typer.testing import CliRunner

from sleeper.cli.main import app
from sleeper.errors import InvalidRequestError
from sleeper.stash.destination import reading_policy


@pytest.mark.parametrize(
    ("destination", "objects"),
    [
        ("s3://b/stash/root/", "b/stash/root/*"),
        ("s3a://b/stash", "b/stash/*"),
        ("s3://b", "b/*"),
        ("s3://b/a*b?c$d", "b/a${*}b${?}c${$}d/*"),
    ],
)
def test_a_policy_allows_listing_the_bucket_and_reading_below_the_destination(
    destination: str, objects: str
) -> None:
    listing, reading = reading_policy(destination)["Statement"]
    assert (listing["Action"], listing["Resource"]) == (["s3:ListBucket"], ["arn:aws:s3:::b"])
    assert reading["Action"] == ["s3:GetObject"]
    assert reading["Resource"] == [f"arn:aws:s3:::{objects}"]


def test_the_command_prints_the_policy() -> None:
    result = CliRunner().invoke(app, ["stash", "policy", "--destination", "s3://b/p"])
    assert json.loads(result.stdout) == reading_policy("s3://b/p")


@pytest.mark.parametrize("destination", ["/data/stash", "hdfs://n/stash", "s3://"])
def test_only_places_in_s3_have_a_policy(destination: str) -> None:
    with pytest.raises(InvalidRequestError, match=r"expected s3://bucket/prefix"):
        reading_policy(destination)
