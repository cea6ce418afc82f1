"""The Spark settings of bulk import messages."""

import json

import pytest

from sleeper.bulk_import.start import SparkRequest, parse_spark_request
from sleeper.errors import InvalidRequestError
from sleeper.jobs.spark_platform import PlatformName, spark_settings
from sleeper.properties.deployment import SPARK_ON_CLUSTERS, SPARK_ON_SERVERLESS
from sleeper.properties.values import instance_properties

INSTANCE = instance_properties({"sleeper.id": "a"})


def test_spark_members_are_optional() -> None:
    job = {"id": "j", "tableName": "t", "files": ["b/f.parquet"]}
    more = {
        "className": "sleeper.Main",
        "platformSpec": {"sleeper.bulk.import.emr.max.executors": "20"},
        "sparkConf": {"spark.executor.memory": "8g"},
    }
    assert parse_spark_request(json.dumps(job)) == SparkRequest()
    assert parse_spark_request(json.dumps(job | more)) == SparkRequest(
        more["platformSpec"],  # type: ignore[arg-type]
        more["sparkConf"],  # type: ignore[arg-type]
        "sleeper.Main",
    )


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("nothing", "is not JSON"),
        ("[]", r"it is \[\] \(expected an object\)"),
        ('{"sparkConf":{"a":[1]}}', r'"sparkConf\[.a.\]" is \[1\] \(expected text\)'),
        ('{"platformSpec":"a"}', r'"platformSpec" is .a. \(expected an object\)'),
        ('{"className":[]}', r'"className" is \[\] \(expected text\)'),
    ],
)
def test_error_names_the_invalid_member(body: str, message: str) -> None:
    with pytest.raises(InvalidRequestError, match=message):
        parse_spark_request(body)


@pytest.mark.parametrize(
    "name",
    [
        "spark.python.daemon.module",
        "spark.python.worker.module",
        "spark.resources.discoveryPlugin",
        "spark.authenticate",
        "spark.serializer",
        "spark.shuffle.manager",
        "spark.sql.adaptive.customCostEvaluatorClass",
        "spark.io.compression.codec",
        "spark.jars",
        "spark.driver.extraJavaOptions",
        "spark.driver.cores.x",
        "spark.emr-serverless.driverEnv.PYTHONPATH",
        "xspark.driver.cores",
    ],
)
def test_message_may_set_sizes_only(name: str) -> None:
    with pytest.raises(InvalidRequestError, match=f'"sparkConf" may not set {name!r}'):
        spark_settings(PlatformName.EMR, INSTANCE, {name: "1"})


@pytest.mark.parametrize(
    "name",
    [
        "spark.executor.cores",
        "spark.driver.memoryOverhead",
        "spark.dynamicAllocation.maxExecutors",
        "spark.speculation.quantile",
        "spark.default.parallelism",
        "spark.sql.shuffle.partitions",
        "spark.memory.storageFraction",
        "spark.shuffle.spill.compress",
        "spark.network.timeout",
        "spark.emr-serverless.executor.disk",
        "spark.task.maxFailures",
    ],
)
@pytest.mark.parametrize("prefix", ["", "sleeper.bulk.import.emr."])
def test_message_may_set_sizes(name: str, prefix: str) -> None:
    settings = {f"{prefix}{name}": "3"}
    assert spark_settings(PlatformName.EMR, INSTANCE, settings)[name] == "3"


def test_every_setting_with_a_property_may_be_set_by_a_message() -> None:
    for name in (*SPARK_ON_SERVERLESS, *SPARK_ON_CLUSTERS):
        assert spark_settings(PlatformName.EMR, INSTANCE, {name: "5"})[name] == "5"
