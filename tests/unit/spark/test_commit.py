"""The driver's commit of a DataFrame, without a Spark."""

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql.types import LongType, StringType, StructField, StructType

import sleeper
from sleeper.errors import UnavailableError
from sleeper.ingest.parts import write_ingest_part
from sleeper.spark.writer import PartWritten, SleeperWriter
from sleeper.statestore.store import StateStore
from sleeper.statestore.transactions.add_files import AddFiles
from sleeper.statestore.transactions.transaction import Outcome, Transaction

SCHEMA = {
    "rowKeyFields": [{"name": "k", "type": "StringType"}],
    "valueFields": [{"name": "n", "type": "LongType"}],
}
SPARK_SCHEMA = StructType([StructField("k", StringType()), StructField("n", LongType())])
ROWS = pa.record_batch({"k": ["a", "b"], "n": pa.array([1, 2], pa.int64())})


@pytest.fixture
def table(tmp_path: Path) -> Iterator[sleeper.Table]:
    with sleeper.create_instance(tmp_path / "here") as instance:
        yield instance.create_table("t", SCHEMA)


def make_writer(table: sleeper.Table, job_id: str) -> SleeperWriter:
    options = {"instance": table._instance.where, "table": "t", "jobId": job_id}
    return SleeperWriter(options, SPARK_SCHEMA, overwrite=False)


def write_part(table: sleeper.Table, writer: SleeperWriter) -> PartWritten:
    files = write_ingest_part(table._instance, writer._begun, [ROWS], "(part)", 1)
    return PartWritten(files)


def lose_answers(monkeypatch: pytest.MonkeyPatch, count: int) -> None:
    """The first commits of files are applied, and not answered."""
    commit, left = StateStore.commit, [count]

    def commit_and_lose_response(self: StateStore, *transactions: Transaction) -> list[Outcome]:
        outcomes = commit(self, *transactions)
        if left[0] and isinstance(transactions[0], AddFiles):
            left[0] -= 1
            raise UnavailableError("no answer")
        return outcomes

    monkeypatch.setattr(StateStore, "commit", commit_and_lose_response)
    monkeypatch.setattr("sleeper.retries.sleep", lambda _: None)


def test_a_commit_without_a_response_is_repeated(
    table: sleeper.Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    writer = make_writer(table, "j")
    part = write_part(table, writer)
    lose_answers(monkeypatch, 2)
    writer.commit([part])
    assert table.query().to_arrow().num_rows == 2


def test_a_commit_that_never_gets_a_response_names_the_job_id(
    table: sleeper.Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    writer = make_writer(table, "j")
    part = write_part(table, writer)
    with monkeypatch.context() as patch:
        lose_answers(patch, 1_000_000)
        with pytest.raises(UnavailableError, match="repeating it with option jobId='j' adds no"):
            writer.commit([part])
    again = make_writer(table, "j")
    again.commit([write_part(table, again)])
    assert table.query().to_arrow().num_rows == 2


def test_an_aborted_write_names_the_job_id(
    table: sleeper.Table, caplog: pytest.LogCaptureFixture
) -> None:
    make_writer(table, "j").abort([None])
    assert "option jobId=j adds no duplicate rows" in caplog.text
