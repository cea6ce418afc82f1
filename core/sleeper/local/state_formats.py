"""The formats of the states of an instance's tables, which only an accepted upgrade converts.

The instance's database has the format that all states have at least, so that an opening need not
read each of them.
"""

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

from sleeper.errors import DataError, InvalidRequestError
from sleeper.local.database import InstanceDatabase
from sleeper.local.folder import InstanceFolder
from sleeper.statestore.conversion import convert_state
from sleeper.statestore.database import Database
from sleeper.statestore.fold_tables import FOLD_FORMAT_VERSION, older_format
from sleeper.statestore.read_only_file import is_writable

AcceptUpgrade = Callable[[str], bool]
"""Returns whether the user accepts the conversion that the text announces."""

_TABLE = "state_formats"
_STATEMENTS = (
    f"CREATE TABLE {_TABLE} (one INTEGER PRIMARY KEY CHECK (one = 1), format INTEGER NOT NULL)",
    f"INSERT INTO {_TABLE} VALUES (1, 0)",
)


def check_state_formats(
    local: InstanceFolder, upgrade: bool, accept: AcceptUpgrade | None = None
) -> None:
    """Converts states of older formats, with a copy of each, after `upgrade` or if it is accepted.

    `upgrade` looks at each state: a copy may have replaced one after the formats were recorded.
    InvalidRequestError if the conversion is not accepted.
    """
    database = local.database
    is_current = not upgrade and _read_format(database) >= FOLD_FORMAT_VERSION
    if is_current or not is_writable(database.path):
        return
    older = list(_find_older(local.state_paths()))
    if older:
        announcement = _announce(database.path.parent, [version for _, version in older])
        if not upgrade and (accept is None or not accept(announcement)):
            raise InvalidRequestError(f"{announcement}. {_HOW_TO_ACCEPT}")
    for path, _ in older:
        with closing(Database(path)) as state:
            convert_state(state)
    record_current_format(database)


def record_current_format(database: InstanceDatabase) -> None:
    """Records that no state has an older format."""
    database.create_missing(_TABLE, _STATEMENTS)
    with database.write() as transaction:
        transaction.execute(f"UPDATE {_TABLE} SET format = ?", (FOLD_FORMAT_VERSION,))


def check_format(path: Path, version: int | None) -> None:
    """Raises InvalidRequestError if the state has an older format."""
    if version is not None:
        raise InvalidRequestError(f"{_announce(path, [version])}. {_HOW_TO_ACCEPT}")


_HOW_TO_ACCEPT = (
    "To convert, add --upgrade to the command, pass upgrade=True in Python, or set "
    "SLEEPER_UPGRADE=1 (see docs/upgrades.md)"
)


def _announce(location: Path, versions: list[int]) -> str:
    counts = sorted(Counter(versions).items())
    formats = ", ".join(
        f"{count} table state{'' if count == 1 else 's'} of format {version}"
        for version, count in counts
    )
    return (
        f"{location} has {formats}, which this version of Sleeper must convert to format "
        f"{FOLD_FORMAT_VERSION}: older versions cannot read it afterwards. A copy of each state is "
        "kept beside it"
    )


def _read_format(database: InstanceDatabase) -> int:
    if not database.read("SELECT 1 FROM sqlite_master WHERE name = ?", (_TABLE,)):
        return 0
    return int(database.read(f"SELECT format FROM {_TABLE}")[0]["format"])


def _find_older(paths: Iterator[Path]) -> Iterator[tuple[Path, int]]:
    for path in paths:
        with closing(Database(path)) as state:
            try:
                with state.reading() as connection:
                    version = older_format(connection)
            except DataError:
                continue  # The file is damaged, which opening its table reports.
        if version is not None:
            yield path, version
