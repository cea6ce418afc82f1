"""Deletes rows of a table by region (design note 13)."""

from collections.abc import Sequence
from dataclasses import dataclass

from sleeper.errors import ConflictError, InvalidRequestError, UnavailableError
from sleeper.instance import Instance
from sleeper.partitions.region import Region, disjoint_regions
from sleeper.statestore.transactions.delete_rows import DeleteRows
from sleeper.statestore.transactions.transaction import Status, new_transaction_id

REGIONS_MAX = 10_000
"""The largest number of regions of one delete, which is one entry of the log."""

_ID_CHARACTERS_MAX = 200


@dataclass(frozen=True, slots=True)
class DeleteResult:
    """The transaction that deleted the rows. `already_done`: an earlier call with the id did."""

    id: str
    number: int | None
    regions: int
    already_done: bool


def delete_rows(
    instance: Instance, table_name: str, regions: Sequence[Region], delete_id: str | None = None
) -> DeleteResult:
    """Deletes the rows of the regions that were committed before, in one transaction.

    Rows that are committed later are kept. A repeated call with the id of an earlier one, within
    30 days, changes nothing. InvalidRequestError if there is no region or too many, or if
    the id is not valid; ConflictError if the id was used for other regions. After UnavailableError
    the rows may or may not be deleted: repeat the call with the id in the message.
    """
    if delete_id is not None:
        _check_id(delete_id)
    if not regions:
        raise InvalidRequestError("no rows to delete (expected a key, a range or a region)")
    distinct = disjoint_regions(regions)
    if len(distinct) > REGIONS_MAX:
        raise InvalidRequestError(
            f"{len(distinct):,} regions to delete (expected at most {REGIONS_MAX:,} in one delete)"
        )
    transaction = DeleteRows(id=delete_id or new_transaction_id(), regions=tuple(distinct))
    state = instance.table(table_name).state
    try:
        (outcome,) = state.commit(transaction)
    except UnavailableError as error:
        raise UnavailableError(
            f"{error}; delete not confirmed: repeating it with the id {transaction.id!r} deletes "
            "no row twice"
        ) from error
    if outcome.refused:
        raise ConflictError(f"cannot delete from table {table_name!r}: {outcome.reason}")
    done = outcome.status is Status.ALREADY_DONE
    return DeleteResult(transaction.id, outcome.number, len(distinct), done)


def _check_id(delete_id: str) -> None:
    if not delete_id or len(delete_id) > _ID_CHARACTERS_MAX or not delete_id.isprintable():
        raise InvalidRequestError(
            f"invalid id of a delete: {delete_id!r:.250} (expected 1 to {_ID_CHARACTERS_MAX} "
            "printable characters)"
        )
