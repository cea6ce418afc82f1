"""SQL statements, reports and properties of an instance from Python."""

from collections.abc import Mapping

from sleeper.admin.properties import change_instance_properties, report_instance_properties
from sleeper.api.argument_types import check_argument_types
from sleeper.api.report_rows import Report, describe_rows, gather_report
from sleeper.api.results import Rowset
from sleeper.api.table_versions import AsOf
from sleeper.instance import Instance as Ports
from sleeper.query.sql.explain import SqlExplanation
from sleeper.query.sql.parameters import Parameters
from sleeper.query.sql.service import explain_statement, open_sql
from sleeper.query.sql.tables import parse_as_of
from sleeper.reports.status import report_status


@check_argument_types
class InstanceQueries:
    """The methods of `Instance` that read it: statements, reports and properties."""

    _ports: Ports

    def sql(
        self,
        statement: str,
        params: Parameters | None = None,
        *,
        as_of: AsOf | Mapping[str, AsOf] | None = None,
    ) -> Rowset:
        """Runs one SELECT statement, which may name any tables of the instance.

        Each table is read at one version: the newest, unless `as_of` gives another, as for
        `Table.query`. A time or an age applies to all tables. A number is that of a statement's
        only table; for several tables, `as_of` is a mapping from names to versions. Rows have no
        order without ORDER BY.

        `params` are the values of parameters: a mapping for `$name`, or a list for `$1`, `$2` and
        so on. The engine binds them to the parsed statement, so text needs no quotes.

        Raises `InvalidRequestError` for a statement that is not valid or not a SELECT, for a
        parameter without a value or a value without a parameter, and for a version that is no
        longer kept.
        """
        versions = parse_as_of(as_of)
        return Rowset(open_sql(self._ports, statement, as_of=versions, parameters=params))

    def explain(
        self,
        statement: str,
        params: Parameters | None = None,
        *,
        as_of: AsOf | Mapping[str, AsOf] | None = None,
    ) -> SqlExplanation:
        """Runs a SELECT statement, discards its rows, and returns the amounts that it read.

        Arguments and errors are those of `sql`.
        """
        return explain_statement(self._ports, statement, parse_as_of(as_of), params)

    def report(
        self, kind: str = "tables", table: str | None = None, limit: int | None = None
    ) -> Report:
        """Returns a report on all tables or one: a mapping for each row.

        `kind` is the name of a report of the command `sleeper report`, such as `"tables"`,
        `"queues"`, `"ingest-jobs"` or `"dead-letters"`, or `"all"`. `limit` is the maximum number
        of rows of each listing.

        Raises `InvalidRequestError` for an unknown report, and `NotFoundError` for an unknown
        table.
        """
        return gather_report(self._ports, kind, table, limit)

    def status(self) -> Report:
        """Returns what is overdue, failing, lagging or dead: a mapping for each problem.

        It has `state`, `kind`, `name`, `since` and `reason`, the worst first. Empty if there is no
        problem. It covers tables, jobs, queues and all systems.
        """
        return describe_rows(report_status(self._ports))

    def properties(self, only_set: bool = False) -> dict[str, str]:
        """Returns the effective values of all properties as text, by name.

        With `only_set`, those that are not at their default.
        """
        report = report_instance_properties(self._ports)
        chosen = report.only_set() if only_set else report
        return {each.name: each.value for each in chosen.properties}

    def set_properties(self, changes: Mapping[str, str]) -> list[str]:
        """Sets properties by name, and returns warnings. An empty value unsets a property.

        Raises `InvalidRequestError` for an unknown property or a value that is not valid; then
        nothing is changed.
        """
        return list(change_instance_properties(self._ports, changes).warnings)
