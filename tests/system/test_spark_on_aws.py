"""The driver's and executors' parts of the Spark connector on an AWS instance, without Spark."""

from collections.abc import Iterator

import pyarrow as pa
import pytest
from pyspark import cloudpickle
from pyspark.sql.datasource import CaseInsensitiveDict
from pyspark.sql.streaming.datasource import ReadAllAvailable

from sleeper.admin.tables import create_table
from sleeper.ingest.parts import begin_ingest, commit_ingest, write_ingest_part
from sleeper.instance import Instance
from sleeper.opening import open_instance
from sleeper.spark.data_source import SleeperDataSource
from sleeper.spark.options import cached_instance
from tests.servers.aws_instance import AwsInstance

SCHEMA = (
    '{"rowKeyFields": [{"name": "n", "type": "LongType"}],'
    ' "valueFields": [{"name": "text", "type": "StringType"}]}'
)


@pytest.fixture
def driver(deployed_instance: AwsInstance) -> Iterator[Instance]:
    """The instance as a process of the driver has it."""
    yield cached_instance(deployed_instance.where)
    cached_instance(deployed_instance.where).close()
    cached_instance.cache_clear()


def test_spark_reads_and_writes_with_data_permissions_only(driver: Instance) -> None:
    create_table(driver, "t", SCHEMA, split_points=[10])
    rows = pa.record_batch({"text": [f"text {n}" for n in range(20)], "n": range(20)})
    ingest = begin_ingest(driver.table("t"), rows.schema, "(rows)")
    executor = open_instance(driver.where)
    files = write_ingest_part(executor, ingest, iter([rows]), "(part)", threads_max=1)
    assert commit_ingest(driver, ingest, "j", files).rows == 20
    assert commit_ingest(driver, ingest, "j", files).done_before
    executor.close()

    names = {"instance": driver.where, "table": "t", "partitionBytes": "1"}
    source = SleeperDataSource(CaseInsensitiveDict(names))
    made = source.reader(source.schema())
    message = cloudpickle.loads(cloudpickle.dumps(made))
    read = [batch for partition in made.partitions() for batch in message.read(partition)]
    assert len(made.partitions()) == 2
    assert pa.Table.from_batches(read).column("n").to_pylist() == [*range(20)]

    stream = source.streamReader(source.schema())
    start = stream.initialOffset()
    end = stream.latestOffset(start, ReadAllAvailable())
    sent_stream = cloudpickle.loads(cloudpickle.dumps(source.streamReader(source.schema())))
    parts = stream.partitions(start, end)
    result = [batch for part in parts for batch in sent_stream.read(part)]
    assert pa.Table.from_batches(result).column("text").to_pylist() == [
        f"text {n}" for n in range(20)
    ]
    stream.stop()
