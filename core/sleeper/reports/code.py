"""The report on user code."""

from dataclasses import dataclass

from sleeper.reports.output import Column, ColumnKind, Listing, pluralize
from sleeper.user_code.name import BUILT_IN, CodeKind
from sleeper.user_code.wheel import Wheel

_COLUMNS = (
    Column("name", "Name"),
    Column("kind", "Kind"),
    Column("object", "Object"),
    Column("wheel", "Wheel"),
    Column("version", "Version"),
    Column("bytes", "Size", ColumnKind.BYTES),
)


@dataclass(frozen=True, slots=True)
class CodeReport:
    """The wheels of an instance."""

    wheels: tuple[Wheel, ...]

    def listing(self) -> Listing:
        """A row for each name, those that come with the product last."""
        rows = [
            (p.name, p.kind.noun, p.place, wheel.file_name, wheel.version, wheel.bytes)
            for wheel in self.wheels
            for p in sorted(
                wheel.entry_points, key=lambda p: (list(CodeKind).index(p.kind), p.name)
            )
        ]
        own = [(p.name, p.kind.noun, p.place, None, None, None) for p in BUILT_IN]
        names = pluralize(len(rows), "name")
        return Listing(
            name="code",
            summary=f"{names} in {pluralize(len(self.wheels), 'wheel')}, "
            f"{len(own)} come with the product",
            columns=_COLUMNS,
            rows=(*rows, *own),
        )
