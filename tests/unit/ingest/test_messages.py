"""Messages that name files or tables are parsed as leniently as Gson parses them."""

import json
import random
import time
from collections.abc import Callable
from typing import Any

import pytest

from sleeper.bulk_export.service import EXPORT_JOBS
from sleeper.bulk_import.start import parse_spark_request
from sleeper.errors import InvalidRequestError, SleeperError
from sleeper.jobs.file_requests import SUBMISSIONS
from sleeper.jobs.ingest_job import INGEST_JOBS
from sleeper.jobs.spark_platform import PlatformName, spark_settings
from sleeper.properties.java_text import read_properties_text
from sleeper.properties.values import (
    instance_properties,
    instance_properties_from_text,
    table_properties_from_text,
)
from tests.seeds import choose_seed

INSTANCE = instance_properties({"sleeper.id": "a"})


def _start_bulk_import(body: str) -> object:
    job = INGEST_JOBS.parse(body, "m")
    request = parse_spark_request(body)
    return job, spark_settings(PlatformName.EMR_SERVERLESS, INSTANCE, request.spark_conf)


PARSERS: dict[str, Callable[[str], object]] = {
    "ingest": lambda body: INGEST_JOBS.parse(body, "m"),
    "ingest batcher": lambda body: SUBMISSIONS.parse(body, "m"),
    "bulk import": _start_bulk_import,
    "bulk export": lambda body: EXPORT_JOBS.parse(body, "m"),
    "instance properties": instance_properties_from_text,
    "table properties": lambda text: table_properties_from_text(text, INSTANCE),
    "properties": read_properties_text,
}
MESSAGES = tuple(PARSERS)[:4]


def test_message_without_files_is_an_empty_job() -> None:
    body = '{"id":"j","tableName":"t","files":[]}'
    assert INGEST_JOBS.parse(body, "m").files == ()
    assert SUBMISSIONS.parse(body, "m").files == ()


def test_numbers_and_booleans_are_read_as_text() -> None:
    body = '{"id":7,"tableName":5.0,"files":["b/k"],"className":true}'
    job = INGEST_JOBS.parse(body, "m")
    assert (job.id, job.table_name) == ("7", "5")
    assert parse_spark_request(body).class_name == "true"
    export = EXPORT_JOBS.parse('{"exportId":12,"tableId":12345678}', "m")
    assert (export.id, export.table_id) == ("12", "12345678")


def test_spark_settings_may_be_numbers_and_booleans() -> None:
    conf = {
        "spark.executor.cores": 8.0,
        "spark.executor.instances": 3,
        "spark.speculation": True,
        "spark.memory.fraction": 0.75,
        "spark.driver.memory": "2g",
    }
    body = json.dumps({"sparkConf": conf, "platformSpec": {"a": 1, "b": False, "c": None}})
    request = parse_spark_request(body)
    assert request.spark_conf == {
        "spark.executor.cores": "8",
        "spark.executor.instances": "3",
        "spark.speculation": "true",
        "spark.memory.fraction": "0.75",
        "spark.driver.memory": "2g",
    }
    assert request.platform_spec == {"a": "1", "b": "false"}
    assert spark_settings(PlatformName.EMR, INSTANCE, request.spark_conf)["spark.speculation"]


@pytest.mark.parametrize("value", ["NaN", "1e999", "[1]", "{}"])
def test_values_other_than_text_are_refused(value: str) -> None:
    with pytest.raises(InvalidRequestError, match=r'"id" is .* \(expected text\)'):
        INGEST_JOBS.parse(f'{{"id":{value},"tableName":"t","files":[]}}', "m")
    with pytest.raises(
        InvalidRequestError, match=r'"sparkConf\[.spark.a.\]" is .* \(expected text\)'
    ):
        parse_spark_request(f'{{"sparkConf":{{"spark.a":{value}}}}}')


@pytest.mark.parametrize("kind", MESSAGES)
@pytest.mark.parametrize("body", ["[" * 100_000, '{"a":' * 50_000, "1" * 5_000, "\ud800", "[]"])
def test_invalid_message_text_is_refused(kind: str, body: str) -> None:
    with pytest.raises(InvalidRequestError):
        PARSERS[kind](body)


_FUZZ_SECONDS = 0.5
_SEEDS: dict[str, str] = {
    "ingest": '{"id":"j1","tableName":"t","files":["b/d/f.parquet","s3://b/d"],"tableId":null}',
    "ingest batcher": '{"tableName":"t","files":["bucket/key","bucket/prefix"]}',
    "bulk import": '{"id":"j","tableId":"0a0b0c0d","files":["b/k"],"platformSpec":{"a":"b"},'
    '"sparkConf":{"spark.executor.cores":"4","spark.driver.memory":"1g"},"className":"c"}',
    "bulk export": '{"exportId":"e1","tableName":"t"}',
    "instance properties": "sleeper.id=a\nsleeper.tags=k,v\nsleeper.gc.period.minutes=5\n"
    "sleeper.optional.stacks=IngestStack\nsleeper.default.table.filters=ageOff(a,1)\n",
    "table properties": "sleeper.table.name=t\nsleeper.table.ingest.batcher.job.max.size=5G\n"
    'sleeper.table.schema={"rowKeyFields"\\:[{"name"\\:"id","type"\\:"StringType"}]}\n'
    "sleeper.table.aggregations=sum(a)\n",
    "properties": "a=b\\\n c\nd\\u0041=\\t!\n#e\nf : g\n",
}
_PIECES = (
    *'{}[]",:\\=#!0-.eE \n\t\r\0',
    *("null", "true", "-1", "1e999", "NaN", "9" * 400, "1.5", "\\u12", "\\ud800", "\ud800", "é"),
    *("\U0001f600", "[" * 500, '{"a":' * 500, '"files"', '"sparkConf"', "spark.jars", "x" * 300),
    *("sleeper.table.", "sleeper.", "ageOff(" * 50, "None", "9223372036854775808"),
)


def _mutated(text: str, chance: random.Random) -> str:
    for _ in range(chance.randint(1, 4)):
        start = chance.randint(0, len(text))
        end = min(len(text), start + chance.choice((0, 0, 1, 2, 8)))
        text = text[:start] + chance.choice(_PIECES) + text[end:]
    return text


@pytest.mark.parametrize("kind", PARSERS)
def test_any_text_raises_only_sleeper_errors(kind: str) -> None:
    seed = choose_seed()
    chance = random.Random(seed)
    end = time.monotonic() + _FUZZ_SECONDS
    while time.monotonic() < end:
        text = _mutated(_SEEDS[kind], chance)
        try:
            PARSERS[kind](text)
        except SleeperError:
            continue
        except Exception as error:
            raise AssertionError(f"seed {seed}, {kind}: {text!r}: {error!r}") from error


def _any_members() -> list[dict[str, Any]]:
    values: tuple[Any, ...] = (None, 1, -1.5, 2**70, True, "", "x", [], [1], [[]], {}, {"a": []})
    names = ("id", "tableName", "tableId", "files", "sparkConf", "platformSpec", "className")
    good: dict[str, Any] = {"tableName": "t", "files": ["b/k"]}
    return [{**good, name: value} for name in names for value in values]


@pytest.mark.parametrize("kind", MESSAGES)
def test_members_of_any_type_raise_only_sleeper_errors(kind: str) -> None:
    for members in _any_members():
        try:
            PARSERS[kind](json.dumps(members))
        except SleeperError:
            continue
