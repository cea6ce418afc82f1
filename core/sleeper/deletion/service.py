"""Deletes rows of a table by region (design note 13)."""

from collections.abc import Sequence
from dataclasses import dataclass

from sleeper.errors import ConflictError, InvalidRequestError, UnavailableError
from sleeper.instance import OpenTable
from sleeper.partitions.region import Region, disjoint_regions, whole_region
from sleeper.processing.restriction import NO_RESTRICTION, find_chain_restriction
from sleeper.properties.table import QUERY_CALLERS
from sleeper.schema.model import Schema
from sleeper.statestore.transactions.delete_rows import DeleteRows
from sleeper.statestore.transactions.transaction import Status, new_transaction_id

REGIONS_MAX = 10_000
"""The largest number of regions of one delete, which is one entry of the log."""

_ID_CHARACTERS_MAX = 200


@dataclass(frozen=True, slots=True)
class DeleteResult:
    """The transaction that deleted the rows. `already_done`: an earlier call with the id did.

    `keys` is the number of keys in the delete's key file.
    """

    id: str
    number: int | None
    regions: int
    already_done: bool
    keys: int = 0


def delete_table_rows(
    table: OpenTable, regions: Sequence[Region], delete_id: str | None = None
) -> DeleteResult:
    """Deletes the rows of the regions that were committed before, in one transaction.

    Rows that are committed later are kept. A repeated call with the id of an earlier one, within
    30 days, changes nothing. InvalidRequestError if there is no region or too many, or if
    the id is not valid; ConflictError if the id was used for other regions. After UnavailableError
    the rows may or may not be deleted: repeat the call with the id in the message.
    """
    if delete_id is not None:
        check_delete_id(delete_id)
    distinct = check_regions(regions)
    transaction = DeleteRows(id=delete_id or new_transaction_id(), regions=tuple(distinct))
    try:
        (outcome,) = table.state.commit(transaction)
    except UnavailableError as error:
        raise UnavailableError(
            f"{error}; delete not confirmed: repeating it with the id {transaction.id!r} deletes "
            "no row twice"
        ) from error
    if outcome.refused:
        raise ConflictError(f"cannot delete from table {table.ref.name!r}: {outcome.reason}")
    done = outcome.status is Status.ALREADY_DONE
    return DeleteResult(transaction.id, outcome.number, len(distinct), done)


def check_regions(regions: Sequence[Region]) -> list[Region]:
    """Returns the distinct regions of a delete. InvalidRequestError for none or too many."""
    if not regions:
        raise InvalidRequestError("no rows to delete (expected a key, a range or a region)")
    distinct = disjoint_regions(regions)
    if len(distinct) > REGIONS_MAX:
        raise InvalidRequestError(
            f"{len(distinct):,} regions to delete (expected at most {REGIONS_MAX:,} in one delete)"
        )
    return distinct


def check_bounded(schema: Schema, regions: Sequence[Region], every_row: str) -> None:
    """Raises InvalidRequestError for a region that is every row, and names the way to say that."""
    if whole_region(schema) in regions:
        raise InvalidRequestError(
            f"a range or region without bounds selects all rows (expected {every_row})"
        )


def check_delete_access(table: OpenTable, chain: Sequence[str]) -> None:
    """Raises InvalidRequestError unless the last caller of the chain may see all of the table.

    The others act on its behalf. A caller who sees a part of the rows could delete the others, or
    learn of them.
    """
    callers = table.properties().get(QUERY_CALLERS)
    if find_chain_restriction(callers, chain, table.ref.name) != NO_RESTRICTION:
        raise InvalidRequestError(
            f"caller {chain[-1]!r} may not see all of table {table.ref.name!r} "
            "(deletes require unrestricted access)"
        )


def check_delete_id(delete_id: str) -> None:
    """Raises InvalidRequestError unless the text can be the id of a delete."""
    if not delete_id or len(delete_id) > _ID_CHARACTERS_MAX or not delete_id.isprintable():
        raise InvalidRequestError(
            f"invalid id of a delete: {delete_id!r:.250} (expected 1 to {_ID_CHARACTERS_MAX} "
            "printable characters)"
        )
