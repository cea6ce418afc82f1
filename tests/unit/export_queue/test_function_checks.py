"""Queues that functions on AWS could not drain are refused."""

from dataclasses import replace

import pytest

from sleeper.errors import InvalidRequestError
from sleeper.export_queue.definition import ExporterSettings, ExportQueue
from sleeper.export_queue.exporters import check_exporter, open_exporter
from sleeper.export_queue.function_checks import check_functions
from sleeper.export_queue.parsing import NewQueue
from sleeper.export_queue.properties import EXPORT_SECRETS, EXPORT_SQS_QUEUES
from sleeper.export_queue.service import create_queue
from sleeper.export_queue.store import open_export_store
from sleeper.instance import Instance
from tests.unit.export_queue.stored_queue import QUEUE, make_table_of_words

URL = "https://sqs.eu-west-2.amazonaws.com"
SHOP = "postgres://writer@db/shop?table=t"


def sends(target: str, password: str | None = None, timeout_seconds: int = 60) -> ExportQueue:
    settings = ExporterSettings(target, password)
    return replace(QUEUE, exporter=settings, timeout_seconds=timeout_seconds)


@pytest.fixture
def remote(instance: Instance) -> Instance:
    """An instance that takes itself for one on AWS."""
    instance.change_properties(
        {
            EXPORT_SECRETS.name: "listed",
            EXPORT_SQS_QUEUES.name: "arn:aws:sqs:eu-west-2:123456789012:notes,"
            "arn:aws:sqs:eu-west-2:210987654321:of-team-*.fifo",
        }
    )
    return replace(instance, background=None)


@pytest.mark.parametrize(
    ("queue", "reason"),
    [
        (sends("null:"), None),
        (sends(SHOP, "secret:listed"), None),
        (sends(SHOP, "secret:shop"), "secret:shop is not a secret that exporters may read"),
        (sends(SHOP, "env:PASSWORD"), "password env:PASSWORD is on this machine"),
        (sends("sqs:notes"), None),
        (sends(f"sqs:{URL}/123456789012/notes"), None),
        (sends(f"sqs:{URL}/210987654321/of-team-a.fifo"), None),
        (sends(f"sqs:{URL}/210987654321/notes"), "is not a queue that exporters may send to"),
        (sends("sqs:note"), "note is not a queue that exporters may send to"),
        (sends("null:", timeout_seconds=290), None),
        (sends("null:", timeout_seconds=291), "timeout 291 s is out of range"),
    ],
)
def test_only_what_functions_can_drain_is_accepted(
    instance: Instance, remote: Instance, queue: ExportQueue, reason: str | None
) -> None:
    check_functions(instance, queue)
    if reason is None:
        check_functions(remote, queue)
        return
    with pytest.raises(InvalidRequestError) as refused:
        check_functions(remote, queue)
    assert reason in str(refused.value)


def test_a_queue_that_functions_cannot_drain_is_not_created(
    instance: Instance, remote: Instance
) -> None:
    make_table_of_words(instance)
    new = NewQueue("q", "words", "ingest", "word", "count", "sqs:other")
    with pytest.raises(InvalidRequestError, match=r"sleeper\.export\.queue\.sqs\.arns"):
        create_queue(remote, new)
    assert open_export_store(instance).list() == []


def test_functions_import_no_module_that_a_definition_names(remote: Instance) -> None:
    queue = sends("python:os:system")
    for use in (check_exporter, open_exporter):
        with pytest.raises(
            InvalidRequestError,
            match=r"^exporter 'os:system' of export queue '.*' names a module \(expected a reg",
        ):
            use(remote, queue)
