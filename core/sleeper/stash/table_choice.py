"""The tables that a stash copies, and those that a scheduled one omits.

A stash that somebody asks for is refused if a table cannot be copied. Nobody reads the answer to a
scheduled one, so it omits the table, and has the reason in `left-out.json` of its record.
"""

from collections.abc import Collection
from dataclasses import dataclass
from fnmatch import fnmatchcase

from sleeper.errors import DataError, InvalidRequestError, NotFoundError
from sleeper.instance import Instance
from sleeper.json_codec import JsonCodec
from sleeper.stash.destination import open_to_write
from sleeper.stash.layout import claim_directory
from sleeper.stash.record import StashRecord, StashRequest, Trigger
from sleeper.tables import TABLE_NAME_LENGTH_MAX, TableId, TableRef

EXCLUDE_MAX = 100
_WILDCARDS = frozenset("*?[")
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


def check_exclude(instance: Instance, request: StashRequest) -> None:
    """Raises InvalidRequestError if the patterns of tables to exclude are invalid.

    NotFoundError if one has no wildcards and names no table: it would exclude nothing. A table may
    be deleted later, so a scheduled stash does not check that.
    """
    patterns = request.exclude
    if patterns and request.tables:
        raise InvalidRequestError(
            f"tables to copy and to exclude were given: {request.tables[0]!r} and {patterns[0]!r} "
            "(expected one of the two)"
        )
    if len(patterns) > EXCLUDE_MAX:
        raise InvalidRequestError(
            f"{len(patterns):,} patterns of tables to exclude (expected at most {EXCLUDE_MAX})"
        )
    for pattern in patterns:
        if not 0 < len(pattern) <= TABLE_NAME_LENGTH_MAX:
            raise InvalidRequestError(
                f"pattern {pattern[:40]!r} of tables to exclude has {len(pattern)} characters "
                f"(expected 1 to {TABLE_NAME_LENGTH_MAX})"
            )
        if request.trigger is Trigger.COMMAND and not _WILDCARDS.intersection(pattern):
            instance.tables.index.find(pattern)


def choose_tables(
    instance: Instance, request: StashRequest, preferred: Collection[TableId] = ()
) -> ChosenTables:
    """Returns the tables of a request, by default all that it does not exclude.

    Of tables that would share a directory, a scheduled stash copies a `preferred` one, or the first
    by name. NotFoundError if a table does not exist, for a scheduled stash if none does.
    InvalidRequestError if a table has no directory of its own, except for a scheduled stash, or if
    all tables are excluded.
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
        return _exclude(list(index.list()), request.exclude), []
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


def _exclude(refs: list[TableRef], patterns: Collection[str]) -> list[TableRef]:
    """Returns the tables that match none of the patterns."""
    kept = [ref for ref in refs if not any(_matches(ref.name, each) for each in patterns)]
    if refs and not kept:
        raise InvalidRequestError(
            f"all tables are excluded by {', '.join(map(repr, patterns))[:200]} (expected at least "
            "one table to copy)"
        )
    return kept


def _matches(name: str, pattern: str) -> bool:
    # A name may have brackets, and is then a pattern of other names.
    return name == pattern or fnmatchcase(name, pattern)


def _path(record: StashRecord) -> str:
    return f"{record.folder}/{_FILE}"
