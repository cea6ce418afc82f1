from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from sleeper.reports.output import Column, ColumnKind, Listing, Value
from sleeper.reports.text_table import format_table

WIDE = 1000
_VALUES: dict[ColumnKind, st.SearchStrategy[Value]] = {
    ColumnKind.TEXT: st.text(st.characters(categories=("L", "N", "P")), max_size=40),
    ColumnKind.PATH: st.from_regex(r"([a-z]{1,5}/){0,3}[a-z0-9]{1,40}", fullmatch=True),
    ColumnKind.COUNT: st.integers(0, 2**63),
    ColumnKind.BYTES: st.integers(0, 2**63),
    ColumnKind.SECONDS: st.floats(0, 1e6),
    ColumnKind.TIME: st.integers(0, 4_000_000_000_000),
}


@st.composite
def listings(draw: st.DrawFn) -> Listing:
    kinds = draw(st.lists(st.sampled_from(list(_VALUES)), min_size=1, max_size=12))
    columns = tuple(Column(f"c{i}", f"Column {i}", kind) for i, kind in enumerate(kinds))
    row = st.tuples(*(st.none() | _VALUES[kind] for kind in kinds))
    rows = draw(st.lists(row, min_size=1, max_size=4))
    return Listing("some", "some", columns, tuple(rows))


def squeeze(text: str) -> str:
    return "".join(text.split())


@given(listings(), st.integers(20, 200))
def test_table_fits_the_width_or_becomes_one_line_per_value(listing: Listing, width: int) -> None:
    narrow = format_table(listing, width)
    if "─" in narrow:
        assert max(cell_len(line) for line in narrow.splitlines()) <= width
    else:
        has_value = any(value not in (None, "") for row in listing.rows for value in row)
        assert has_value == bool(squeeze(narrow))


@given(listings(), st.integers(20, 200))
def test_narrow_tables_keep_all_characters(listing: Listing, width: int) -> None:
    wide, narrow = squeeze(format_table(listing, WIDE)), squeeze(format_table(listing, width))
    for heading in (f"Column{i}" for i in range(len(listing.columns))):
        wide, narrow = wide.replace(heading, ""), narrow.replace(heading, "")
    for heading_part in ("Column", "─", "…"):
        wide, narrow = wide.replace(heading_part, ""), narrow.replace(heading_part, "")
    # Wrapped headings and texts have another order of characters.
    headings = {str(i) for i in range(len(listing.columns))}
    assert set(wide) - headings == set(narrow) - headings


def test_numbers_are_not_wrapped() -> None:
    columns = (Column("a", "A"), Column("n", "N", ColumnKind.COUNT))
    listing = Listing("some", "some", columns, (("x" * 60, 123_456_789),))
    assert format_table(listing, 25).splitlines() == [
        "A                       N",
        "─────────────────────────",
        "xxxxxxxxxxxx  123,456,789",
        *["xxxxxxxxxxxx"] * 4,
    ]
    assert format_table(listing, 24).splitlines() == [f"A  {'x' * 60}", "N  123,456,789"]


def test_columns_without_values_are_omitted() -> None:
    columns = (Column("a", "A"), Column("b", "B"), Column("n", "N", ColumnKind.COUNT))
    listing = Listing("some", "some", columns, (("x", None, 0), ("y", "", None)))
    assert format_table(listing, 80).splitlines() == ["A  N", "────", "x  0", "y"]
