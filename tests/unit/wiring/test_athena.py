"""The connector of an instance is made from its properties."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from sleeper.errors import InvalidRequestError
from sleeper.properties.deployed import ATHENA_SPILL_BUCKET
from sleeper.properties.engine import ATHENA_HOLD_SECONDS, ATHENA_SHOWS_RAW, ATHENA_SPLIT_BYTES
from sleeper.properties.instance import SPLITTING_FILES_MAX
from sleeper.wiring.athena import athena_connector
from sleeper.wiring.instance import Instance
from sleeper.wiring.local_instance import make_local_instance, open_local_instance


@pytest.fixture
def instance(tmp_path: Path) -> Iterator[Instance]:
    make_local_instance(tmp_path / "instance", "test")
    opened = open_local_instance(tmp_path / "instance")
    yield opened
    opened.close()


def test_the_connector_spills_and_cuts_as_the_properties_say(instance: Instance):
    instance.change_properties(
        {
            ATHENA_SPILL_BUCKET.name: "spilled",
            ATHENA_HOLD_SECONDS.name: "120",
            ATHENA_SPLIT_BYTES.name: "64M",
            SPLITTING_FILES_MAX.name: "7",
            ATHENA_SHOWS_RAW.name: "false",
        }
    )
    connector = athena_connector(instance)
    assert connector.spill.name == "spilled"
    assert connector.spill.root.url_of("x") == "s3://spilled/x"
    settings = connector.settings
    assert (settings.hold_seconds, settings.sketched_files_max) == (120, 7)
    assert not settings.shows_raw
    assert settings.split_bytes == 64 * 1024**2


def test_an_instance_without_the_stack_says_what_is_missing(instance: Instance):
    with pytest.raises(InvalidRequestError, match=r"sleeper\.athena\.spill\.bucket is not set"):
        athena_connector(instance)
