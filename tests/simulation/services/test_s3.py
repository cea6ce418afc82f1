"""The simulated S3: conditional puts, retries of the object store, uploads in parts."""

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import obstore
import pytest
from obstore.exceptions import AlreadyExistsError, GenericError, PreconditionError
from obstore.store import MemoryStore

from simulation.calls import Call, Fault
from simulation.services.world import Services
from sleeper.aws.clients import aws_client, describe_old_versions
from sleeper.aws.stack_deletion import empty_bucket
from sleeper.errors import UnavailableError
from sleeper.storage.bucket import Bucket, MissingBucketError
from sleeper.storage.location import DataRoot
from tests.simulation.services.worlds import World

MIB = 1024**2


@pytest.fixture
def services(world: World, tmp_path: Path) -> Iterator[Services]:
    services = world.services(tmp_path)
    services.s3.create("data")
    with services.install():
        yield services


@pytest.fixture
def root(services: Services) -> DataRoot:
    return DataRoot(Bucket("data", "prefix"))


def test_a_conditional_put_that_failed_after_it_landed_fails_against_itself(
    root: DataRoot, world: World
) -> None:
    world.chosen = lambda probability: probability == 0.5
    world.faults = [Fault.LOST]
    with pytest.raises(AlreadyExistsError):
        obstore.put(root.store, "a", b"a", mode="create")
    assert root.read("a") == b"a"
    world.faults = [Fault.LOST]
    with root.sink("b") as sink:
        sink.write(b"b")


def test_a_conditional_put_without_a_response_is_not_repeated(root: DataRoot, world: World) -> None:
    world.faults = [Fault.LOST]
    world.made.clear()
    with pytest.raises(GenericError, match="timed out"):
        obstore.put(root.store, "a", b"a", mode="create")
    assert world.made == ["s3.put data/prefix/a"]
    world.faults = [Fault.LOST]
    obstore.put(root.store, "a", b"b")
    assert root.read("a") == b"b"


def test_an_update_needs_the_tag_of_the_newest_object(root: DataRoot) -> None:
    first = obstore.put(root.store, "a", b"1")
    second = obstore.put(root.store, "a", b"2", mode={"e_tag": first["e_tag"]})
    for tag in (first["e_tag"], "other"):
        with pytest.raises(PreconditionError):
            obstore.put(root.store, "a", b"3", mode={"e_tag": tag})
    assert obstore.head(root.store, "a")["e_tag"] == second["e_tag"]
    with pytest.raises(PreconditionError):
        obstore.put(root.store, "missing", b"3", mode={"e_tag": first["e_tag"]})


def test_a_conditional_put_is_refused_while_another_write_is_in_flight(
    root: DataRoot, world: World
) -> None:
    refused: list[bool] = []

    def put_before(call: Call) -> None:
        world.fail = lambda _call: None
        try:
            obstore.put(root.store, "a", b"2", mode="create")
        except AlreadyExistsError:
            refused.append(call.target == "data/prefix/a")

    world.fail, world.chosen = put_before, lambda probability: probability == 0.5
    obstore.put(root.store, "a", b"1")
    assert refused == [True]
    assert root.read("a") == b"1"


def test_an_update_that_conflicts_is_repeated(root: DataRoot, world: World) -> None:
    tag = obstore.put(root.store, "a", b"1")["e_tag"]
    answers = iter([True, False])

    def put_before(_call: Call) -> None:
        world.fail = lambda _call: None
        world.chosen = lambda probability: probability == 0.5 and next(answers)
        obstore.put(root.store, "a", b"2", mode={"e_tag": tag})

    world.fail = put_before
    obstore.put(root.store, "a", b"3")
    assert root.read("a") == b"3"
    assert next(answers, None) is None
    assert len(world.waits) == 1


@pytest.mark.parametrize("fault", [Fault.UNAVAILABLE, Fault.THROTTLED, Fault.FULL])
def test_failures_are_repeated_and_named_at_last(
    root: DataRoot, world: World, fault: Fault
) -> None:
    world.faults = [fault] * 3
    root.put("a", b"a")
    world.faults = [fault] * 100
    with pytest.raises(UnavailableError, match="503 Service Unavailable"):
        root.read("a")
    assert 5 < sum(world.waits) < 30


def test_some_faults_last_for_all_attempts(root: DataRoot, world: World) -> None:
    world.chosen = lambda probability: probability == 0.4
    world.faults = [Fault.UNAVAILABLE]
    with pytest.raises(UnavailableError, match="503 Service Unavailable"):
        root.put("a", b"a")
    assert world.faults == []
    assert 5 < sum(world.waits) < 30
    root.put("a", b"a")


def test_a_large_object_is_put_in_parts(root: DataRoot, world: World) -> None:
    world.made.clear()
    with root.sink("a") as sink:
        for _ in range(5):
            sink.write(b"x" * 8 * MIB)
    assert [call.split()[0] for call in world.made] == [
        "s3.create_multipart_upload",
        *["s3.upload_part"] * 3,
        "s3.complete_multipart_upload",
    ]
    assert obstore.head(root.store, "a")["e_tag"].endswith('-3"')
    with contextlib.suppress(ZeroDivisionError), root.sink("b") as sink:
        sink.write(b"x" * 20 * MIB)
        sink.write(1 // 0)
    assert [each.path for each in root.list_objects("")] == ["a"]


def test_a_listing_is_in_order_and_has_pages_of_a_thousand(root: DataRoot, world: World) -> None:
    names = [f"a/{i:04}" for i in range(2_500)]
    for name in ["b", *reversed(names), "ab/c"]:
        obstore.put(root.store, name, b"")
    world.made.clear()
    assert [each.path for each in root.list_objects("a")] == names
    assert len(world.made) == 4
    assert root.list_folders("") == ["a", "ab"]


def test_objects_are_deleted_in_part(root: DataRoot, world: World) -> None:
    for name in "abc":
        root.put(name, b"")
    answers = iter([False, True, False])
    world.chosen = lambda _probability: next(answers)
    with pytest.raises(UnavailableError, match="DeleteObjects"):
        root.delete(["a", "b", "c", "missing"][:3])
    assert [each.path for each in root.list_objects("")] == ["b"]
    world.chosen = lambda _probability: False
    root.delete(["b", "missing"])


def test_missing_objects_and_buckets(root: DataRoot) -> None:
    with pytest.raises(FileNotFoundError):
        obstore.get(root.store, "a")
    with pytest.raises(MissingBucketError):
        DataRoot(Bucket("missing")).read("a")


def test_other_stores_are_as_before(services: Services) -> None:
    store = MemoryStore()
    obstore.put(store, "a", b"a")
    assert obstore.get(store, "a").bytes() == b"a"


def test_a_bucket_is_emptied_by_the_client(root: DataRoot) -> None:
    client: Any = aws_client("s3")
    client.create_bucket(Bucket="other")
    for i in range(1_200):
        client.put_object(Bucket="other", Key=f"{i}", Body=b"x")
    assert client.get_object(Bucket="other", Key="7")["Body"].read() == b"x"
    assert empty_bucket(client, "other") == 1_200
    assert empty_bucket(client, "missing") == 0
    assert describe_old_versions("other") is None
    with pytest.raises(client.exceptions.NoSuchKey):
        client.get_object(Bucket="other", Key="7")
