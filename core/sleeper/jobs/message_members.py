"""The job and the table that a message names, for logs and reports."""

from dataclasses import dataclass

from sleeper.errors import InvalidRequestError, SleeperError
from sleeper.lenient_json import parse_message_object
from sleeper.tables import TableId, TableIndex

_IDS = ("jobId", "queryId", "id", "runId", "partitionId")


@dataclass(frozen=True, slots=True)
class NamedJob:
    """The id of a job, and its table by name or id, None where the message has none."""

    job: str | None = None
    table_name: str | None = None
    table_id: str | None = None

    def find_table_id(self, index: TableIndex) -> TableId | None:
        """Returns the id of the table, None if it is not known."""
        if self.table_id is not None or self.table_name is None:
            return None if self.table_id is None else TableId(self.table_id)
        try:
            return index.find(self.table_name).id
        except SleeperError:
            return None

    def find_table_name(self, index: TableIndex) -> str | None:
        """Returns the name of the table, or its id if it has none."""
        if self.table_name is not None or self.table_id is None:
            return self.table_name
        try:
            return index.get(TableId(self.table_id)).name
        except SleeperError:
            return self.table_id


def read_named_job(body: str) -> NamedJob:
    """Returns what a message of any queue names, nothing if it is not a JSON object."""
    try:
        raw = parse_message_object(body, "message")
    except InvalidRequestError:
        return NamedJob()
    members = {name: value for name, value in raw.items() if isinstance(value, str) and value}
    job = next((members[name] for name in _IDS if name in members), None)
    return NamedJob(job, members.get("tableName"), members.get("tableId"))
