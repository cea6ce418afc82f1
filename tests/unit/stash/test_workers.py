"""Stashes that workers of an instance could not write are refused."""

from dataclasses import replace

import pytest

from sleeper.errors import InvalidRequestError
from sleeper.instance import Instance
from sleeper.stash.message import check_workers
from sleeper.stash.properties import STASH_BUCKET
from tests.ports import with_ports
from tests.unit.stash.conftest import Stasher


@pytest.fixture
def deployed(stasher: Stasher) -> Instance:
    """Returns an instance like one on AWS, whose tasks write to the bucket `stashes`."""
    instance = stasher.ports()
    instance.change_properties({STASH_BUCKET.name: "stashes"})
    return replace(instance, background=None)


@pytest.mark.parametrize("destination", ["s3://stashes", "s3://stashes/", "s3://stashes/a/daily"])
def test_tasks_on_aws_write_to_their_bucket(deployed: Instance, destination: str) -> None:
    check_workers(deployed, destination)


@pytest.mark.parametrize(
    "destination", ["s3://stashes-of-others/daily", "s3://mine/stashes", "/data/stash", "stashes"]
)
def test_other_destinations_are_refused_on_aws(deployed: Instance, destination: str) -> None:
    message = rf"^destination {destination} is not in the bucket .* \(expected s3://stashes or "
    with pytest.raises(InvalidRequestError, match=message):
        check_workers(deployed, destination)


def test_workers_of_this_machine_write_anywhere(stasher: Stasher) -> None:
    check_workers(stasher.ports(), "s3://mine/stashes")
    check_workers(stasher.ports(), stasher.destination)


def test_an_instance_without_the_queue_has_no_workers(deployed: Instance) -> None:
    bare = with_ports(deployed, jobs={"queues": ()})
    with pytest.raises(InvalidRequestError, match=r"no workers for stashes \(expected .*StashSt"):
        check_workers(bare, "s3://stashes")
