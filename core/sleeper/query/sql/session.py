"""The engine's session of a SQL statement, and what it is told about the tables."""

from collections.abc import Mapping
from dataclasses import dataclass

from datafusion import SessionConfig, SessionContext

from sleeper.datafiles.engine.session import create_session
from sleeper.datafiles.engine.settings import EngineSettings
from sleeper.query.sql.json_functions import register_json_functions
from sleeper.query.sql.needs import TableNeeds
from sleeper.query.sql.plan import TablePlan
from sleeper.schema.model import PrimitiveType

# The footers of all files are read before the first row.
_STATISTICS_FILES_MAX = 1000
_FLOATS = (PrimitiveType.FLOAT, PrimitiveType.DOUBLE)


@dataclass(frozen=True, slots=True)
class Pruning:
    """The means by which the engine skips rows of files.

    A statement `by_keys` has predicates on row keys. Their columns are decoded first, and the
    others for few rows. For predicates on other fields, this would take longer than it saves.
    `by_joins` tells whether values that a join or a sort has found exclude rows of other scans.
    `with_statistics` the planner reads those of all files, to order the joins.
    """

    by_keys: bool = False
    by_joins: bool = False
    with_statistics: bool = False


_NO_PRUNING = Pruning()


def open_sql_session(
    settings: EngineSettings, pruning: Pruning = _NO_PRUNING, mixes_json: bool = False
) -> SessionContext:
    """Returns a session for one statement, with its own memory pool.

    A statement that `mixes_json` may have other text in a column that is marked as JSON.
    """
    config = (
        SessionConfig()
        .with_target_partitions(settings.threads)
        .with_information_schema(False)
        .set("datafusion.execution.parquet.pushdown_filters", _flag(pruning.by_keys))
        .set("datafusion.execution.collect_statistics", _flag(pruning.with_statistics))
        .set("datafusion.optimizer.enable_dynamic_filter_pushdown", _flag(pruning.by_joins))
    )
    session = create_session(config, settings)
    # The paths of files are internal.
    session.deregister_udf("input_file_name")
    # It would mark any text as JSON, which functions do not check and outputs do not quote.
    session.deregister_udf("with_metadata")
    register_json_functions(session, checks_all=mixes_json)
    return session


def _flag(value: bool) -> str:
    return "true" if value else "false"


def find_pruning(plans: Mapping[str, TablePlan], needs: Mapping[str, TableNeeds]) -> Pruning:
    """Returns the pruning of a statement, of which `needs` has the part of each table.

    Joins and sorts must not exclude rows by expressions that may fail on a hidden row, or by
    statistics that are not exact, such as those of floats, which omit NaN. With statistics, the
    engine answers MIN and MAX from them too, and does not read a column whose least and largest
    value in a file are equal.
    """
    reads_floats = any(
        field.type in _FLOATS and needs[name].reads(field.name)
        for name, plan in plans.items()
        for field in plan.schema.values
    )
    reads_exactly = not reads_floats and all(each.prunes_exactly for each in needs.values())
    files = sum(len(plan.paths) for plan in plans.values())
    return Pruning(
        by_keys=any(each.regions is not None for each in needs.values()),
        by_joins=reads_exactly and not any(plan.hides_rows for plan in plans.values()),
        with_statistics=reads_exactly and len(plans) > 1 and files <= _STATISTICS_FILES_MAX,
    )
