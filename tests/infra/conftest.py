"""Synthesised templates that several modules share, because synthesis takes seconds."""

import pytest

from tests.infra.record_release import synthesise_every_part
from tests.infra.synthesis import (
    FORMER_KEY,
    GROUP,
    KEY,
    PLATFORM_STACKS,
    RECEIVER,
    SECRET,
    Synthesis,
    synthesise,
)


@pytest.fixture(scope="session")
def example(tmp_path_factory: pytest.TempPathFactory) -> Synthesis:
    """The templates of `docs/examples/deploy`."""
    return synthesise(tmp_path_factory.mktemp("cdk") / "out")


@pytest.fixture(scope="session")
def platforms(tmp_path_factory: pytest.TempPathFactory) -> Synthesis:
    """The templates of all platforms of bulk imports, and of optional parts."""
    folder = tmp_path_factory.mktemp("platforms")
    file = folder / "instance.properties"
    file.write_text(
        f"sleeper.id=example\nsleeper.optional.stacks={','.join(PLATFORM_STACKS.values())}\n"
        "sleeper.network.interface.endpoints=true\nsleeper.tracing=true\n"
        f"sleeper.ingest.source.bucket=my-bucket\n"
        f"sleeper.adapter.secrets=shop/reader@db-1.example,shop/reader@db-2.example,{SECRET}@*\n"
        "sleeper.adapter.security.groups=sg-1\n"
        f"sleeper.export.queue.secrets=index/writer,{SECRET}\n"
        f"sleeper.export.queue.sqs.arns={RECEIVER}\n"
        f"sleeper.export.queue.subnets=subnet-1,subnet-2\nsleeper.export.queue.security.groups={GROUP}\n"
        "sleeper.adjunct.stores=accounts=table:accounts prices=files:s3://my-prices/daily/*.parquet\n"
    )
    return synthesise(folder / "out", file)


@pytest.fixture(scope="session")
def with_dashboard(tmp_path_factory: pytest.TempPathFactory) -> Synthesis:
    """An instance with every part that costs no cluster, the dashboard, and a given bucket."""
    folder = tmp_path_factory.mktemp("dashboard")
    file = folder / "instance.properties"
    stacks = "IngestStack,IngestBatcherStack,CompactionStack,GarbageCollectorStack,"
    stacks += "PartitionSplittingStack,QueryStack,BulkExportStack,TableMetricsStack,DashboardStack,"
    stacks += "AdapterStack,StashStack,IcebergStack,ExportQueueStack,AdjunctStack"
    file.write_text(
        f"sleeper.id=Example\nsleeper.optional.stacks={stacks}\n"
        "sleeper.dashboard.time.window.minutes=2\nsleeper.metrics.table.period.minutes=10\n"
        "sleeper.export.queue.alarm.minutes=0\n"
        "sleeper.adjunct.stores=accounts=table:accounts\nsleeper.adjunct.alarm.minutes=0\n"
        "sleeper.adjunct.reader.image=public.ecr.aws/docker/library/python:3.13-slim\n"
        "sleeper.query.results.shared=false\nsleeper.lambda.concurrency.quota=107\n"
        "sleeper.statestore.committer.concurrency.reserved=7\nsleeper.queue.receives.max=2\n"
        "sleeper.stash.bucket=our-stashes\nsleeper.stash.alarm.hours=26\n"
    )
    return synthesise(folder / "out", file)


@pytest.fixture(scope="session")
def athena_stack(tmp_path_factory: pytest.TempPathFactory) -> Synthesis:
    """The templates of an instance that Athena queries."""
    folder = tmp_path_factory.mktemp("athena")
    file = folder / "instance.properties"
    file.write_text(
        "sleeper.id=Lake.1\nsleeper.optional.stacks=AthenaStack\n"
        "sleeper.athena.spill.bucket.ageoff.days=3\nsleeper.athena.handler.memory.mb=2048\n"
    )
    return synthesise(folder / "out", file)


@pytest.fixture(scope="session")
def apis(tmp_path_factory: pytest.TempPathFactory) -> Synthesis:
    """The templates of an instance with the HTTP API and the WebSocket."""
    folder = tmp_path_factory.mktemp("apis")
    file = folder / "instance.properties"
    stacks = "QueryStack,WebSocketQueryStack,RestApiStack,IngestStack,BulkExportStack,"
    stacks += "ExportQueueStack,KeepLambdaWarmStack"
    file.write_text(
        f"sleeper.id=example\nsleeper.optional.stacks={stacks}\n"
        "sleeper.query.warm.lambda.period.minutes=7\n"
    )
    return synthesise(folder / "out", file)


@pytest.fixture(scope="session")
def all_parts(tmp_path_factory: pytest.TempPathFactory) -> Synthesis:
    """The templates of an instance with every optional part."""
    return synthesise_every_part(tmp_path_factory.mktemp("parts"))


@pytest.fixture(scope="session")
def encrypted(tmp_path_factory: pytest.TempPathFactory) -> Synthesis:
    """The same, with a KMS key, and another one before it."""
    settings = f"sleeper.kms.key.arn={KEY}\nsleeper.kms.former.key.arns={FORMER_KEY}\n"
    return synthesise_every_part(tmp_path_factory.mktemp("encrypted"), settings)
