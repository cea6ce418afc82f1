"""The tables that a stash copies, and those that a scheduled one omits.

A stash that somebody asks for is refused if a table cannot be copied. Nobody reads the answer to a
scheduled one, so it omits the table, and has the reason in `left-out.json` of its record.
"""

from collections.abc import Collection
from dataclasses import dataclass

from sleeper.errors import DataError, InvalidRequestError, NotFoundError
from sleeper.instance import Instance
from sleeper.json_codec import JsonCodec
from sleeper.stash.destination import open_to_write
from sleeper.stash.layout import claim_directory
from sleeper.stash.record import StashRecord, StashRequest, Trigger
from sleeper.tables import TableId, TableRef

_FILE = "left-out.json"


@dataclass(frozen=True, slots=True)
class OmittedTable:
    """The name of a table that a stash does not copy, and why."""

    table: str
    reason: str


@dataclass(frozen=True, slots=True)
class ChosenTables:
    """The tables that a stash copies, and those that it omits."""

    tables: list[TableRef]
    omitted: list[OmittedTable]


_CODEC = JsonCodec(OmittedTable)


def needs_all_tables(request: StashRequest) -> bool:
    """Returns whether a stash fails if one of its tables is deleted."""
    return bool(request.tables) and request.trigger is Trigger.COMMAND


def choose_tables(
    instance: Instance, request: StashRequest, preferred: Collection[TableId] = ()
) -> ChosenTables:
    """Returns the tables of a request, by default all.

    Of tables that would share a directory, a scheduled stash copies a `preferred` one, or the first
    by name. NotFoundError if a table does not exist, for a scheduled stash if none does.
    InvalidRequestError if a table has no directory of its own, except for a scheduled stash.
    """
    is_scheduled = request.trigger is Trigger.SCHEDULE
    refs, omitted = _find_tables(instance, request, is_scheduled)
    owners: dict[str, str] = {}
    chosen = set()
    for ref in sorted(refs, key=lambda each: (each.id not in preferred, each.name)):
        problem = claim_directory(ref.name, owners)
        if problem is None:
            chosen.add(ref.id)
        elif is_scheduled:
            omitted.append(OmittedTable(ref.name, problem))
        else:
            raise InvalidRequestError(f"{problem}, or name the tables with --table")
    return ChosenTables([ref for ref in refs if ref.id in chosen], omitted)


def choose_for_planning(instance: Instance, request: StashRequest) -> ChosenTables:
    """As `choose_tables`. A table that the latest stash of the destination has is preferred.

    So its directory never becomes that of another table.
    """
    chosen = choose_tables(instance, request)
    if not chosen.omitted:
        return chosen
    destination = open_to_write(request.destination, instance.storage.root)
    try:
        earlier = {each.id for each in destination.tables(destination.latest())}
    except (NotFoundError, DataError):
        return chosen
    return choose_tables(instance, request, earlier)


def record_omitted(record: StashRecord, omitted: Collection[OmittedTable]) -> None:
    """Records the tables that a stash omits. The first process that does counts."""
    if omitted:
        content = "".join(f"{_CODEC.format(each)}\n" for each in omitted)
        record.own.create(_path(record), content.encode())


def read_omitted(record: StashRecord) -> tuple[OmittedTable, ...]:
    """Returns the tables that a stash omits, as far as it is planned."""
    path = _path(record)
    try:
        lines = record.own.read(path).decode(errors="replace").splitlines()
    except NotFoundError:
        return ()
    return tuple(_CODEC.parse(line, record.own.url_of(path), DataError) for line in lines)


def describe_omitted(omitted: Collection[OmittedTable]) -> str | None:
    """Returns one text on all tables that a stash omits; None if there are none."""
    return "; ".join(f"left out {each.table!r}: {each.reason}" for each in omitted) or None


def _find_tables(
    instance: Instance, request: StashRequest, is_scheduled: bool
) -> tuple[list[TableRef], list[OmittedTable]]:
    index = instance.tables.index
    if not request.tables:
        return list(index.list()), []
    refs, omitted = [], []
    for name in dict.fromkeys(request.tables):
        try:
            refs.append(index.find(name))
        except NotFoundError as error:
            if not is_scheduled:
                raise
            omitted.append(OmittedTable(name, str(error)))
    if not refs:
        raise NotFoundError(omitted[0].reason)
    return refs, omitted


def _path(record: StashRecord) -> str:
    return f"{record.folder}/{_FILE}"
