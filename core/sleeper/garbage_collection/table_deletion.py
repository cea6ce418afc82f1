"""Finishes the deletion of a dropped table."""

import logging
from collections.abc import Callable

from sleeper.errors import InvalidRequestError
from sleeper.tables.table_index import TableIndex
from sleeper.tables.table_ref import TableId, TableRef, TableState

logger = logging.getLogger(__name__)

RemovePiece = Callable[[TableId], object]
"""Removes one piece of a table; nothing happens if it is gone."""


def finish_table_deletion(table: TableRef, index: TableIndex, *remove: RemovePiece) -> None:
    """Removes the table's pieces in the order given, and at last its row in the index.

    While the row is there the deletion can be repeated, so one that dies anywhere is
    finished by the next. InvalidRequestError if the table is in use.
    """
    if table.state is not TableState.DELETING:
        raise InvalidRequestError(f"table {table.name!r} is in use: it is not being deleted")
    for remove_piece in remove:
        remove_piece(table.id)
    index.remove(table.id)
    logger.info("table deleted", extra={"table": table.id})
