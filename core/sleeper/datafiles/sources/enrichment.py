"""The port through which rows on their way into a table get fields that their source lacks."""

from collections.abc import Collection
from dataclasses import replace
from typing import Protocol

import pyarrow as pa

from sleeper.schema.model import Schema


class RowEnrichment(Protocol):
    """Fills fields of rows. It is of one job, which sees one version of what it looks up."""

    @property
    def names(self) -> frozenset[str]:
        """The fields that it fills, which a source may lack."""

    def fill(
        self, columns: dict[str, pa.Array], is_exempt: pa.Array | None
    ) -> dict[int, tuple[str, str]]:
        """Fills nulls in the columns of a batch, which have the fields' types.

        Returns the field and reason of rows that are rejected. Rows of `is_exempt` are not.
        """


def make_source_schema(schema: Schema, names: Collection[str]) -> Schema:
    """Returns the schema of sources that may lack these fields, or have nulls in them."""
    values = tuple(
        replace(each, nullable=True, default=None) if each.name in names else each
        for each in schema.values
    )
    ids = {each.id for each in schema.values if each.name in names}
    first, *later = (*schema.earlier, schema)
    # A field that the first schema does not have may be missing.
    kept = tuple(each for each in first.values if each.id not in ids)
    earlier = (replace(first, values=kept, latest=None), *later[:-1])
    return replace(schema, values=values, earlier=earlier)
