"""The connector of an instance for Athena."""

from dataclasses import replace
from typing import Any

from sleeper.athena.answering import answer
from sleeper.athena.connector import Connector, ConnectorSettings, SpillBucket
from sleeper.datafiles.bucket import Bucket
from sleeper.datafiles.location import DataRoot
from sleeper.errors import InvalidRequestError
from sleeper.processing.restriction import parse_callers
from sleeper.properties.deployed import ATHENA_SPILL_BUCKET
from sleeper.properties.engine import ATHENA_HOLD_SECONDS, ATHENA_SHOWS_RAW, ATHENA_SPLIT_BYTES
from sleeper.properties.instance import SPLITTING_FILES_MAX
from sleeper.properties.table import QUERY_CALLERS
from sleeper.query.engine import QueryTable
from sleeper.wiring.instance import Instance, OpenTable
from sleeper.wiring.query import query_table

ATHENA_CALLER = "athena"
"""What a table's property of callers knows those by who ask through Athena."""


def athena_connector(instance: Instance) -> Connector:
    """InvalidRequestError if the instance was deployed without a bucket to spill to."""
    properties = instance.properties()
    return Connector(
        instance.tables,
        lambda ref: _as_athena_sees(OpenTable(instance, ref)),
        instance.query_engine,
        SpillBucket(*_spill_bucket(instance)),
        ConnectorSettings(
            properties.get(ATHENA_HOLD_SECONDS),
            properties.get(ATHENA_SPLIT_BYTES),
            properties.get(SPLITTING_FILES_MAX),
            shows_raw=properties.get(ATHENA_SHOWS_RAW),
        ),
    )


def answer_athena(instance: Instance, request: Any) -> dict[str, Any]:
    """The answer to a request of Athena's protocol, as JSON objects.

    The properties are read each time, so that a change reaches a function that is warm.
    """
    return answer(request, athena_connector(instance))


def _as_athena_sees(table: OpenTable) -> QueryTable:
    """The table as Athena's readers see it, whoever they are.

    Nothing that a request says of them can be relied on, because they invoke the functions
    themselves. So they are not "everybody else" either: some may be callers that are named.
    """
    callers = table.properties().get(QUERY_CALLERS)
    if callers and ATHENA_CALLER not in parse_callers(callers):
        raise InvalidRequestError(
            f"table {table.ref.name!r} is not open to all callers, and {QUERY_CALLERS.name} says "
            f"nothing of {ATHENA_CALLER!r}"
        )
    return query_table(table, ATHENA_CALLER)


def _spill_bucket(instance: Instance) -> tuple[str, DataRoot]:
    name = instance.properties().get(ATHENA_SPILL_BUCKET)
    if name is None:
        raise InvalidRequestError(
            f"property {ATHENA_SPILL_BUCKET.name} is not set: the instance was deployed "
            "without the stack for Athena"
        )
    own = next(iter(instance.root.buckets), Bucket(""))
    return name, DataRoot(replace(own, name=name, prefix=""))
