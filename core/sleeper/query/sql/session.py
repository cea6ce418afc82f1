"""The engine's session of a SQL statement, and what it is told about the tables."""

import re
from collections.abc import Mapping
from collections.abc import Set as AbstractSet

from datafusion import SessionConfig, SessionContext

from sleeper.datafiles.engine.session import create_session
from sleeper.datafiles.engine.settings import EngineSettings
from sleeper.query.sql.plan import TablePlan
from sleeper.schema.model import PrimitiveType

# The footers of all files are read before the first row.
_STATISTICS_FILES_MAX = 1000
_FLOATS = (PrimitiveType.FLOAT, PrimitiveType.DOUBLE)
_EXTREME = re.compile(r"\b(min|max)\b", re.IGNORECASE)


def open_sql_session(
    settings: EngineSettings, is_narrow: bool = False, uses_statistics: bool = False
) -> SessionContext:
    """Returns a session for one statement, with its own memory pool.

    A narrow statement has predicates on row keys. Their columns are decoded first, and the others
    for few rows. For predicates on other fields, this would take longer than it saves.
    """
    config = (
        SessionConfig()
        .with_target_partitions(settings.threads)
        .with_information_schema(False)
        .set("datafusion.execution.parquet.pushdown_filters", _flag(is_narrow))
        .set("datafusion.execution.collect_statistics", _flag(uses_statistics))
    )
    session = create_session(config, settings)
    # The paths of files are internal.
    session.deregister_udf("input_file_name")
    return session


def _flag(value: bool) -> str:
    return "true" if value else "false"


def needs_statistics(
    statement: str, plans: Mapping[str, TablePlan], columns: Mapping[str, AbstractSet[str]]
) -> bool:
    """Returns whether the planner reads the statistics of all files, to order the joins.

    `columns` are those that the statement reads, by table; all columns of a table without an entry.
    The planner answers MIN and MAX from statistics too, and those of floats omit NaN.
    """
    files = sum(len(plan.paths) for plan in plans.values())
    if len(plans) < 2 or files > _STATISTICS_FILES_MAX:
        return False
    reads_floats = any(
        field.type in _FLOATS
        for name, plan in plans.items()
        for field in plan.schema.values
        if name not in columns or field.name in columns[name]
    )
    return not (reads_floats and _EXTREME.search(statement))
