"""What bulk import messages ask of Spark, beside what they have in common with ingest's."""

import json

import pytest

from sleeper.bulk_import.job import SparkRequest, spark_request_from_message
from sleeper.errors import InvalidRequestError


def test_members_for_spark_are_read_and_may_be_missing() -> None:
    job = {"id": "j", "tableName": "t", "files": ["b/f.parquet"]}
    more = {
        "className": "sleeper.Main",
        "platformSpec": {"sleeper.bulk.import.emr.max.executors": "20"},
        "sparkConf": {"spark.executor.memory": "8g"},
    }
    assert spark_request_from_message(json.dumps(job)) == SparkRequest()
    assert spark_request_from_message(json.dumps(job | more)) == SparkRequest(
        more["platformSpec"],  # type: ignore[arg-type]
        more["sparkConf"],  # type: ignore[arg-type]
        "sleeper.Main",
    )


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ("nothing", "is not JSON"),
        ("[]", "must be a JSON object"),
        ('{"sparkConf":{"a":1}}', '"sparkConf" must be a map of texts'),
        ('{"platformSpec":"a"}', '"platformSpec" must be a map of texts'),
        ('{"className":1}', '"className" must be text'),
    ],
)
def test_what_is_wrong_is_named(body: str, said: str) -> None:
    with pytest.raises(InvalidRequestError, match=said):
        spark_request_from_message(body)
