"""Writers that do not fill the fields that a table's ingests fill."""

from sleeper.errors import InvalidRequestError
from sleeper.instance import OpenTable
from sleeper.properties.table import INGEST_ENRICHMENT


def refuse_enrichment(table: OpenTable, writer: str) -> None:
    """Raises InvalidRequestError if the table has fields that its ingests fill."""
    if table.properties().get(INGEST_ENRICHMENT) is not None:
        raise InvalidRequestError(
            f"table {table.ref.name!r} has the property {INGEST_ENRICHMENT.name}, and {writer} "
            "does not fill fields (expected an ingest)"
        )
