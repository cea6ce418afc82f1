"""Operations on whole tables of a simulated DynamoDB."""

from collections.abc import Callable
from typing import Any, TypeVar

from simulation.services.dynamodb.service import DynamoService, describe
from simulation.services.requests import Requests

T = TypeVar("T")


class TablesClient:
    """The methods of a client that create, describe and change tables."""

    def __init__(self, service: DynamoService, requests: Requests) -> None:
        self._service = service
        self._requests = requests

    def create_table(self, **request: Any) -> dict[str, Any]:
        """Creates a table, which is active at once."""
        return self._send(
            "create_table",
            request["TableName"],
            lambda: {"TableDescription": describe(self._service.create(request))},
        )

    def describe_table(self, **request: Any) -> dict[str, Any]:
        """Describes a table."""
        return self._send(
            "describe_table",
            request["TableName"],
            lambda: {"Table": describe(self._service.table(request["TableName"], "DescribeTable"))},
        )

    def delete_table(self, **request: Any) -> dict[str, Any]:
        """Deletes a table."""

        def effect() -> dict[str, Any]:
            table = self._service.table(request["TableName"], "DeleteTable")
            del self._service.tables[request["TableName"]]
            return {"TableDescription": describe(table)}

        return self._send("delete_table", request["TableName"], effect)

    def update_table(self, **request: Any) -> dict[str, Any]:
        """Turns the deletion protection on or off."""

        def effect() -> dict[str, Any]:
            table = self._service.table(request["TableName"], "UpdateTable")
            table.is_protected = request["DeletionProtectionEnabled"]
            return {"TableDescription": describe(table)}

        return self._send("update_table", request["TableName"], effect)

    def update_time_to_live(self, **request: Any) -> dict[str, Any]:
        """Sets the attribute with the time, in seconds, at which an item expires."""

        def effect() -> dict[str, Any]:
            table = self._service.table(request["TableName"], "UpdateTimeToLive")
            setting = request["TimeToLiveSpecification"]
            table.expiry_attribute = setting["AttributeName"] if setting["Enabled"] else None
            return {"TimeToLiveSpecification": setting}

        return self._send("update_time_to_live", request["TableName"], effect)

    def list_tables(self) -> dict[str, Any]:
        """Returns the names of tables."""
        return self._send("list_tables", "", lambda: {"TableNames": sorted(self._service.tables)})

    def _send(self, operation: str, table: str, effect: Callable[[], T], key: str = "") -> T:
        target = f"{table}/{key}" if key else table
        return self._requests.send(operation, target, effect)
