"""Adapters of an instance from Python."""

from sleeper.adapters.definition import Adapter
from sleeper.adapters.due import schedule_adapter
from sleeper.adapters.run import AdapterRun, run_adapter
from sleeper.adapters.service import create_adapter
from sleeper.adapters.source_text import NewAdapter
from sleeper.adapters.store import AdapterStore
from sleeper.api.argument_types import check_argument_types
from sleeper.instance import Instance as Ports
from sleeper.options import takes


@check_argument_types
class InstanceAdapters:
    """The methods of `Instance` that create, run, schedule and delete adapters."""

    _ports: Ports

    def adapters(self) -> list[Adapter]:
        """Returns the adapters, by name. One has `name`, `source`, `sink` and `schedule`."""
        return list(AdapterStore(self._ports.storage.root).list())

    @takes(NewAdapter)
    def create_adapter(self, new: NewAdapter) -> Adapter:
        """Creates an adapter, whose runs load all rows of a source into a table.

        `source` is `postgresql://user@host/database`, `mariadb://...` or `mysql://...`;
        `table:NAME`, perhaps with `@` and a version; or the path or paths of files. `sink` is a
        table: each run replaces the rows of a snapshot table, and adds rows to any other table. For
        a database, `table` or `query` is the table or the SQL to read, and `password` a reference:
        `env:NAME`, `file:PATH` or `secret:NAME`. The engine `adbc` reads PostgreSQL with one
        connection. `spark` reads `partitions` parts in parallel, divided by values of
        `partition_column` from `lower` to `upper`. `timeout` limits the query, such as `30m`.

        `columns` has the source's column of each field that is not read from the column of its own
        name, and `constants` the value of each field that is not read, as text of CSV. The other
        columns of the source are ignored then.

        `replace` gives an existing adapter another source and sink. The source is opened to check
        that it fits the table, unless `check` is false.

        Raises `InvalidRequestError` for arguments that are not valid and a source that does not
        fit, `NotFoundError` if the sink does not exist, `ConflictError` if the name is taken, and
        `UnavailableError` if the source does not answer.
        """
        return create_adapter(self._ports, new)

    def run_adapter(self, name: str, run_id: str | None = None) -> AdapterRun:
        """Loads all rows of an adapter's source into its sink, in one commit.

        A run with the `run_id` of a committed one changes nothing. The default is a new id.

        Raises `NotFoundError` if there is no such adapter, `InvalidRequestError` if a row does not
        fit or the database needs Spark, which only `sleeper adapter run` starts, and
        `UnavailableError` if the source does not answer.
        """
        return run_adapter(self._ports, name, run_id)

    def schedule_adapter(self, name: str, schedule: str | None) -> Adapter:
        """Sets the schedule of an adapter and returns the changed adapter.

        `schedule` is a duration such as `15m`, `rate(1 hour)`, or `cron(0 6 * * ? *)` in UTC; None
        removes it. `sleeper run` and instances on AWS run what is due.

        Raises `NotFoundError` if there is no such adapter, and `InvalidRequestError` if the
        schedule is not valid, or tasks on AWS could not run the adapter.
        """
        return schedule_adapter(self._ports, name, schedule)

    def delete_adapter(self, name: str) -> None:
        """Deletes an adapter. Its sink keeps all rows.

        Raises `NotFoundError` if there is no such adapter.
        """
        AdapterStore(self._ports.storage.root).delete(name)
