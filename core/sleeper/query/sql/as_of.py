"""As of which transactions a statement reads its tables."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from sleeper.errors import InvalidRequestError

_DIGITS_MAX = 20


@dataclass(frozen=True, slots=True)
class AsOf:
    """Transaction numbers by table; `alone` is that of a statement's only table.

    Each table has numbers of its own. A table that is not there is read at its newest version.
    """

    alone: int | None = None
    of_tables: Mapping[str, int] = field(default_factory=dict)

    def versions(self, named: Sequence[str]) -> dict[str, int]:
        """By table of a statement that names these.

        InvalidRequestError if it names none of a number, or leaves open which one is meant.
        """
        known = f"it names {', '.join(sorted(named))}" if named else "it names none"
        for name in self.of_tables:
            if name not in named:
                raise InvalidRequestError(
                    f"as of a transaction of {name!r}: the statement names no such table; {known}"
                )
        if self.alone is None:
            return dict(self.of_tables)
        if len(named) != 1:
            raise InvalidRequestError(
                f"as of transaction {self.alone}: each table has numbers of its own, so a number "
                f"alone is for a statement of one table; {known}"
            )
        return {named[0]: self.alone}


NEWEST = AsOf()


def parse_as_of(value: object) -> AsOf:
    """From a number, numbers by table, or None for the newest versions.

    InvalidRequestError if a number is not a whole one of 1 or more.
    """
    if value is None:
        return NEWEST
    if isinstance(value, Mapping):
        return AsOf(of_tables={str(name): _number(each) for name, each in value.items()})
    return AsOf(_number(value))


def parse_as_of_options(texts: Sequence[str]) -> AsOf:
    """From `N`, or a `TABLE=N` for each table."""
    alone: int | None = None
    of_tables: dict[str, int] = {}
    for text in texts:
        name, equals, digits = text.rpartition("=")
        is_number = digits.isascii() and digits.isdigit() and len(digits) < _DIGITS_MAX
        number = _number(int(digits) if is_number else text)
        if not equals and len(texts) > 1:
            raise InvalidRequestError(f"as of {text}: with others it takes its table: TABLE={text}")
        if name in of_tables:
            raise InvalidRequestError(f"as of {text}: table {name!r} is given twice")
        if equals:
            of_tables[name] = number
        else:
            alone = number
    return AsOf(alone, of_tables)


def _number(value: object) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not 0 < value < 2**63:
        raise InvalidRequestError(
            f"as of {value!r:.200}: expected a transaction number of 1 or more, or one for each "
            "table"
        )
    return value
