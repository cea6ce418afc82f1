"""The policy that `sleeper stash policy` prints is enough to read stashes, and needed."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import sleeper
from sleeper.errors import UnavailableError
from sleeper.retries import RETRY_VARIABLE
from sleeper.stash import Stash
from sleeper.stash.destination import reading_policy
from sleeper.storage.bucket import open_bucket
from tests.servers.ministack import ACCOUNT, Ministack, ministack

pytestmark = pytest.mark.slow

BUCKET = "policy-of-stashes"
DESTINATION = f"s3://{BUCKET}/stash/root"
SCHEMA = {"rowKeyFields": [{"name": "k", "type": "LongType"}]}
TRUST = {
    "Version": "2012-10-17",
    "Statement": {
        "Effect": "Allow",
        "Principal": {"AWS": f"arn:aws:iam::{ACCOUNT}:root"},
        "Action": "sts:AssumeRole",
    },
}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ministack]:
    with ministack(tmp_path_factory.mktemp("policy"), checks_policies=True) as running:
        yield running


@pytest.fixture
def stash(server: Ministack, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A complete stash and one that was interrupted, in a bucket with objects of others."""
    use(monkeypatch, server.environment())
    s3 = server.client("s3")
    s3.create_bucket(Bucket=BUCKET)
    s3.put_object(Bucket=BUCKET, Key="stash/secret", Body=b"secret")
    with sleeper.create_instance(tmp_path / "instance") as instance:
        instance.create_table("a:b", SCHEMA).ingest(pa.table({"k": [1, 2]}))
        instance.stash(DESTINATION)
    s3.put_object(Bucket=BUCKET, Key="stash/root/2001-01-01-00-00-00/a~b/x", Body=b"")


def use(monkeypatch: pytest.MonkeyPatch, environment: dict[str, str]) -> None:
    for name, value in {**environment, RETRY_VARIABLE: "0.1"}.items():
        monkeypatch.setenv(name, value)
    open_bucket.cache_clear()


def take_role(server: Ministack, monkeypatch: pytest.MonkeyPatch, policy: Any) -> None:
    """Makes requests of this process those of a new role with the policy."""
    iam, sts = server.client("iam"), server.client("sts")
    name = f"reader-{len(iam.list_roles()['Roles'])}"
    arn = iam.create_role(RoleName=name, AssumeRolePolicyDocument=json.dumps(TRUST))["Role"]["Arn"]
    iam.put_role_policy(RoleName=name, PolicyName="stash", PolicyDocument=json.dumps(policy))
    keys = sts.assume_role(RoleArn=arn, RoleSessionName="test")["Credentials"]
    given = {
        "AWS_ACCESS_KEY_ID": keys["AccessKeyId"],
        "AWS_SECRET_ACCESS_KEY": keys["SecretAccessKey"],
        "AWS_SESSION_TOKEN": keys["SessionToken"],
    }
    use(monkeypatch, {**server.environment(), **given})


def read_all() -> None:
    """Calls all that a reader can call."""
    stash = Stash.open(DESTINATION)
    assert stash.tables() == ["a:b"]
    assert [root.success is not None for root in stash._destination.roots()] == [False, True]
    assert stash.stash_time() is not None
    stash.lock()
    for rows in (stash.scan("a:b"), stash.split("a:b", *stash.splits("a:b"))):
        assert [row["k"] for row in rows] == [1, 2]


@pytest.mark.usefixtures("stash")
def test_the_policy_is_enough_and_needed(
    server: Ministack, monkeypatch: pytest.MonkeyPatch
) -> None:
    policy = reading_policy(DESTINATION)
    take_role(server, monkeypatch, policy)
    read_all()
    place = Stash.open(f"s3://{BUCKET}/stash")._destination
    with pytest.raises(UnavailableError, match="403"):
        place.root.read("secret")
    with pytest.raises(UnavailableError, match="403"), place.root.replacing("root/x") as sink:
        sink.write(b"x")
    listing, reading = policy["Statement"]
    elsewhere = reading_policy(f"s3://{BUCKET}/stash/other")["Statement"]
    for less in ([listing], [reading], elsewhere):
        take_role(server, monkeypatch, {**policy, "Statement": less})
        with pytest.raises(UnavailableError, match="403"):
            read_all()
