"""Runs the adapter of a message: in this process, or where Spark runs."""

from sleeper.adapters.definition import ADAPTER_RUN
from sleeper.adapters.message import check_workers, parse_adapter_message
from sleeper.adapters.platform import needs_spark, run_in_process, run_on_platform
from sleeper.adapters.run import run_adapter
from sleeper.adapters.store import AdapterStore
from sleeper.instance import Instance
from sleeper.jobs.queue import Message
from sleeper.runs.tracking import check_age, track_run
from sleeper.tables import TableId

_UNKNOWN_TABLE = TableId("")


def run_adapter_message(
    instance: Instance, message: Message, task_id: str | None = None
) -> tuple[int, int]:
    """Runs the adapter of a message. Returns the numbers of rows read and written.

    InvalidRequestError, recorded as a rejection, if the message or its adapter is invalid, or if
    the message is as old as the ids of committed jobs that the state keeps.
    """
    kind = ADAPTER_RUN
    with track_run(instance, kind, _UNKNOWN_TABLE, message.message_id, task_id).reject_errors():
        request = parse_adapter_message(message.body)
    unknown = f"{request.adapter}:{request.run_id}"
    with track_run(instance, kind, _UNKNOWN_TABLE, unknown, task_id).reject_errors():
        adapter = AdapterStore(instance.storage.root).get(request.adapter)
        table_id = instance.tables.index.find(adapter.sink.table).id
    job_id = adapter.job_id(request.run_id)
    with track_run(instance, kind, table_id, job_id, task_id).reject_errors():
        check_age(instance, message, f"run {job_id}", "if its rows are not there")
        # The adapter may have been replaced since the message was sent.
        check_workers(instance, adapter)
    if not needs_spark(adapter):
        rows = run_adapter(instance, adapter.name, request.run_id, task_id=task_id).rows
    elif instance.jobs.spark_platform is not None:
        rows = run_on_platform(instance, adapter, request.run_id)
    else:
        rows = run_in_process(instance, adapter, request.run_id)
    return rows, rows
