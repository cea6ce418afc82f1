"""The transactions as of which a statement reads its tables."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from sleeper.errors import InvalidRequestError

_DIGITS_MAX = 20


@dataclass(frozen=True, slots=True)
class AsOf:
    """Transaction numbers by table; `single` is that of a statement's only table.

    Each table has its own numbers. Tables without a number are read at their newest version.
    """

    single: int | None = None
    by_table: Mapping[str, int] = field(default_factory=dict)

    def versions(self, named: Sequence[str]) -> dict[str, int]:
        """Returns the number of each table, for a statement that names these tables.

        Raises `InvalidRequestError` for a table that it does not name, and for a single number
        if it does not name exactly one table.
        """
        known = f"it names {', '.join(sorted(named))}" if named else "it names no table"
        for name in self.by_table:
            if name not in named:
                raise InvalidRequestError(
                    f"as of a transaction of {name!r}: no such table in the statement; {known}"
                )
        if self.single is None:
            return dict(self.by_table)
        if len(named) != 1:
            raise InvalidRequestError(
                f"as of transaction {self.single}: a number without a table is for a statement of "
                f"one table; {known}"
            )
        return {named[0]: self.single}


NEWEST = AsOf()


def parse_as_of(value: object) -> AsOf:
    """Parses a number, a mapping from tables to numbers, or `None` for the newest versions.

    Raises `InvalidRequestError` for a number that is not a positive whole number.
    """
    if value is None:
        return NEWEST
    if isinstance(value, Mapping):
        return AsOf(by_table={str(name): _number(each) for name, each in value.items()})
    return AsOf(_number(value))


def parse_as_of_options(texts: Sequence[str]) -> AsOf:
    """Parses options of the command line: `N`, or `TABLE=N` for each table."""
    single: int | None = None
    by_table: dict[str, int] = {}
    for text in texts:
        name, equals, digits = text.rpartition("=")
        is_number = digits.isascii() and digits.isdigit() and len(digits) < _DIGITS_MAX
        number = _number(int(digits) if is_number else text)
        if not equals and len(texts) > 1:
            raise InvalidRequestError(f"as of {text}: missing table (expected TABLE={text})")
        if name in by_table:
            raise InvalidRequestError(f"as of {text}: duplicate table {name!r}")
        if equals:
            by_table[name] = number
        else:
            single = number
    return AsOf(single, by_table)


def _number(value: object) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not 0 < value < 2**63:
        raise InvalidRequestError(
            f"as of {value!r:.200}: expected a transaction number of 1 or more, or one per table"
        )
    return value
