"""What export queues use: tables, which are not deleted meanwhile, and exporters of wheels."""

import json
from collections.abc import Iterator

from sleeper.errors import InvalidRequestError
from sleeper.export_queue.table_queries import queues_in
from sleeper.instance import Instance, OpenTable
from sleeper.user_code.wheel import CodeKind


def check_deletion(table: OpenTable) -> None:
    """Raises InvalidRequestError if the table has export queues, whose exports might be lost."""
    with table.state.reading() as state:
        queues = [each.name for each in queues_in(state).all()]
    if queues:
        raise InvalidRequestError(
            f"table {table.ref.name!r} has export queues: {', '.join(queues)} (expected none: "
            "delete them first with `sleeper export-queue delete`)"
        )


def find_users(instance: Instance, kind: CodeKind, name: str) -> Iterator[str]:
    """Yields the queues that use an exporter of that name."""
    if kind is not CodeKind.EXPORTER:
        return
    for ref in instance.tables.index.list():
        with OpenTable(instance, ref).state.reading() as state:
            queues = queues_in(state).all()
        for queue in queues:
            if json.loads(queue.definition)["exporter"]["text"] == f"python:{name}":
                yield f"export queue {queue.name}"
