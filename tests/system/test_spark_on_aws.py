"""What Spark's driver and executors do with an AWS instance, but for Spark itself."""

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
def driver(deployed: AwsInstance) -> Iterator[Instance]:
    """The instance as a process of the driver has it."""
    yield cached_instance(deployed.where)
    cached_instance(deployed.where).close()
    cached_instance.cache_clear()


def test_spark_reads_and_writes_with_data_permissions_only(driver: Instance) -> None:
    create_table(driver, "t", SCHEMA, split_points=[10])
    rows = pa.record_batch({"text": [f"text {n}" for n in range(20)], "n": range(20)})
    begun = begin_ingest(driver.table("t"), rows.schema, "(rows)")
    executor = open_instance(driver.where)
    files = write_ingest_part(executor, begun, iter([rows]), "(part)", threads_max=1)
    assert commit_ingest(driver, begun, "j", files).rows == 20
    assert commit_ingest(driver, begun, "j", files).done_before
    executor.close()

    named = {"instance": driver.where, "table": "t", "partitionBytes": "1"}
    source = SleeperDataSource(CaseInsensitiveDict(named))
    made = source.reader(source.schema())
    sent = cloudpickle.loads(cloudpickle.dumps(made))
    read = [batch for each in made.partitions() for batch in sent.read(each)]
    assert len(made.partitions()) == 2
    assert pa.Table.from_batches(read).column("n").to_pylist() == [*range(20)]

    stream = source.streamReader(source.schema())
    start = stream.initialOffset()
    end = stream.latestOffset(start, ReadAllAvailable())
    sent_stream = cloudpickle.loads(cloudpickle.dumps(source.streamReader(source.schema())))
    parts = stream.partitions(start, end)
    found = [batch for each in parts for batch in sent_stream.read(each)]
    assert pa.Table.from_batches(found).column("text").to_pylist() == [
        f"text {n}" for n in range(20)
    ]
    stream.stop()
