"""Text columns whose values look like dates or numbers in a form that Sleeper does not parse."""

from collections.abc import Iterator

import pyarrow as pa
import pyarrow.compute as pc

# What the values match, what they look like, and the form that would be parsed.
_FORMS = (
    (r"^\d{1,2}\.\d{1,2}\.\d{4}$", "dates such as 24.12.2025", "2025-12-24"),
    (r"^\d{1,2}/\d{1,2}/\d{4}$", "dates such as 12/24/2025", "2025-12-24"),
    (r"^[+-]?(\d+|\d{1,3}(\.\d{3})+),\d+$", "numbers with a decimal comma", "1.5"),
)


def describe_foreign_values(rows: pa.Table) -> Iterator[str]:
    """Yields a sentence for each column of text that consists of such values."""
    for field, column in zip(rows.schema, rows.columns, strict=True):
        values = column.drop_null() if pa.types.is_string(field.type) else None
        for form, looks, expected in _FORMS if values else ():
            if pc.all(pc.match_substring_regex(values, form)).as_py():
                yield (
                    f"column {field.name!r} looks like {looks}, and becomes text (convert the "
                    f"values to the form {expected} to give it another type)"
                )
