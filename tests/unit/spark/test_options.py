"""Options of the `sleeper` format: their meaning, and the errors for invalid ones."""

import base64
import json
import pickle
import re
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from pyspark.sql.datasource import CaseInsensitiveDict

from sleeper.errors import InvalidRequestError
from sleeper.partitions.region import Region
from sleeper.properties.deployed import CONFIG_BUCKET
from sleeper.properties.values import InstanceProperties
from sleeper.query.request import Query, make_key_regions, make_range_region
from sleeper.schema.model import Field, PrimitiveType, Schema
from sleeper.spark import options

ONE = Schema((Field("city", PrimitiveType.STRING),), (), (Field("v", PrimitiveType.LONG),))
TWO = Schema((Field("n", PrimitiveType.INT), Field("b", PrimitiveType.BYTE_ARRAY)))


def regions(schema: Schema, **values: Any) -> tuple[Region, ...] | None:
    texts = {k: v if isinstance(v, str) else json.dumps(v) for k, v in values.items()}
    return options.read_query(CaseInsensitiveDict(texts), schema).regions


def test_no_options_query_the_whole_table() -> None:
    assert options.read_query({}, ONE) == Query()


def test_keys_are_values_or_lists_of_values() -> None:
    expected = make_key_regions(ONE, [("Oslo",), ("Lima",)])
    assert regions(ONE, keys=["Oslo", "Lima"]) == expected
    assert regions(ONE, keys=[["Oslo"], ["Lima"]]) == expected
    assert regions(TWO, keys=[[1, "AAE="]]) == make_key_regions(TWO, [(1, b"\x00\x01")])


def test_an_empty_list_of_keys_selects_no_rows() -> None:
    assert regions(ONE, keys=[]) == ()


def test_ranges_are_pairs_with_null_for_unbounded_ends() -> None:
    first, second = make_range_region(ONE, "a", "b"), make_range_region(ONE, "c", None)
    assert regions(ONE, range=["a", "b"]) == (first,)
    assert regions(ONE, ranges=[["a", "b"], ["c", None]]) == (first, second)
    assert regions(ONE, Keys=["x"], RANGE=["a", "b"]) == (*make_key_regions(ONE, [("x",)]), first)


def test_regions_have_the_form_of_messages() -> None:
    plain = {"city": {"min": "a", "max": "b"}, "stringsBase64Encoded": False}
    encoding = {"city": {"min": base64.b64encode(b"a").decode(), "max": "Yg=="}}
    expected = (make_range_region(ONE, "a", "b"),)
    assert regions(ONE, region=plain) == regions(ONE, regions=[encoding]) == expected


@pytest.mark.parametrize(
    ("schema", "options", "reason"),
    [
        (ONE, {"keys": "Oslo"}, "'keys': 'Oslo' is not JSON"),
        (ONE, {"keys": {"a": 1}}, "is not a JSON list"),
        (ONE, {"keys": [["a", "b"]]}, "has 2 values"),
        (ONE, {"keys": [7]}, "city"),
        (TWO, {"keys": [1]}, "has 1 values"),
        (ONE, {"range": ["a"]}, r"neither \[min, max\] nor a region"),
        (ONE, {"ranges": ["a", "b"]}, r'"a" is neither'),
        (ONE, {"range": ["b", "a"]}, "is empty"),
        (ONE, {"region": {"town": {}}}, "not a row key field"),
        (ONE, {"regions": {"city": {}}}, "is not a JSON list"),
        (ONE, {"asOf": "yesterday"}, "'asOf': as of 'yesterday': expected a transaction number"),
        (ONE, {"asOf": "0"}, "'asOf': as of 0: expected"),
    ],
)
def test_invalid_values_are_refused_with_their_option(
    schema: Schema, options: dict[str, Any], reason: str
) -> None:
    with pytest.raises(InvalidRequestError, match=reason):
        regions(schema, **options)


@pytest.mark.parametrize("text", ["v, city", '["v", "city"]', '"v",city'])
def test_columns_are_csv_or_a_list(text: str) -> None:
    assert options.read_columns({"columns": text}) == ("v", "city")


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "'' contains no column"),
        (" , ", "contains no column"),
        ("[]", r"'\[\]' contains no column"),
        ("v,city,v", "'v,city,v' contains a column twice"),
        ('"v', "'columns': '\"v': unexpected end"),
        ("v\ncity", "'columns'"),
        ("[v", r"'columns': '\[v' is not JSON"),
    ],
)
def test_invalid_columns_are_refused_with_the_option_s_text(text: str, reason: str) -> None:
    with pytest.raises(InvalidRequestError, match=reason):
        options.read_columns({"columns": text})


def test_an_unknown_option_is_refused_with_the_known_ones() -> None:
    with pytest.raises(InvalidRequestError, match=r"unknown option 'colums'.*columns"):
        options.check_options({"colums": "v"}, options.READ_OPTIONS)
    options.check_options(CaseInsensitiveDict({"ASOF": "1"}), options.READ_OPTIONS)


@pytest.mark.parametrize(
    "find", [options.read_instance, options.read_table_name], ids=["instance", "table"]
)
def test_instance_and_table_are_required(
    find: Callable[[options.Options], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("SLEEPER_INSTANCE", raising=False)
    with pytest.raises(InvalidRequestError, match="is missing"):
        find({})


def test_a_relative_folder_becomes_absolute(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert options.read_instance({"instance": "here"}) == str(tmp_path / "here")
    assert options.read_instance({"instance": "aws:prod"}) == "aws:prod"
    monkeypatch.setenv("SLEEPER_INSTANCE", "there")
    assert options.read_instance({}) == str(tmp_path / "there")


def test_starting_version_is_the_beginning_a_version_or_the_latest() -> None:
    assert options.read_starting_version({}) == 0
    assert options.read_starting_version({"startingVersion": "7"}) == 7
    assert options.read_starting_version({"startingVersion": "Latest"}) is None
    with pytest.raises(InvalidRequestError, match="startingVersion"):
        options.read_starting_version({"startingVersion": "-1"})


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[tuple[str, str | None]]]:
    """The instances that are opened, of which those on AWS have a config bucket."""
    calls: list[tuple[str, str | None]] = []
    properties = InstanceProperties({CONFIG_BUCKET.name: "conf"})

    def open_instance(where: str, config_bucket: str | None = None) -> Any:
        calls.append((where, config_bucket))
        if where.endswith("missing"):
            raise InvalidRequestError("AWS credentials: Unable to locate credentials")
        return SimpleNamespace(properties=lambda: properties)

    monkeypatch.setattr(options, "open_instance", open_instance)
    options.cached_instance.cache_clear()
    yield calls
    options.cached_instance.cache_clear()


def test_tasks_open_an_instance_on_aws_by_the_bucket_that_the_driver_found(
    opened: list[tuple[str, str | None]],
) -> None:
    place = options.InstancePlace.plan("aws:prod")
    pickle.loads(pickle.dumps(place)).open()
    options.InstancePlace.plan("/folder").open()
    assert opened == [("aws:prod", None), ("aws:prod", "conf"), ("/folder", None)]


@pytest.mark.usefixtures("opened")
def test_a_task_without_credentials_fails_with_its_host_and_without_a_cause() -> None:
    reason = f"Unable to locate credentials on host {socket.gethostname()} (expected credentials"
    with pytest.raises(InvalidRequestError, match=re.escape(reason)) as failure:
        options.InstancePlace("aws:missing", "conf").open()
    assert failure.value.__cause__ is None
    assert failure.value.__suppress_context__
