"""The holds of a deployed instance's tables: items of a DynamoDB table of their own.

Its key is the table's id and the hold's. DynamoDB deletes an item some time after its expiry.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from sleeper.aws.dynamo import DynamoItems, Item
from sleeper.aws.errors import RefusedError
from sleeper.statestore.holds import MARGIN_MS, Hold

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient


class DynamoHolds:
    """Implements `sleeper.statestore.holds.HoldStore` for one table. Safe for threads."""

    def __init__(self, client: "DynamoDBClient", table_name: str, table_id: str) -> None:
        self._table_id = table_id
        self._items = DynamoItems(client, table_name, f"holds of table {table_id}")

    @property
    def accepts_writes(self) -> bool:
        return True

    def all(self) -> Sequence[Hold]:
        items = self._items.query("#tableId = :tableId", {"tableId": self._table_id})
        return [Hold(i["id"], i["owner"], i["version"], i["expiryMs"], "floor" in i) for i in items]

    def put(self, hold: Hold) -> None:
        self._items.put(
            {
                **self._key(hold.id),
                "owner": hold.owner,
                "version": hold.version,
                "floor": 1 if hold.is_floor else None,
                **_expiry(hold.expiry_ms),
            }
        )

    def extend(self, hold_id: str, expiry_ms: int) -> bool:
        change = "SET #expiryMs = :expiryMs, #expiryDate = :expiryDate"
        try:
            self._items.update(
                self._key(hold_id), change, "attribute_exists(#id)", _expiry(expiry_ms)
            )
        except RefusedError:
            return False
        return True

    def delete(self, hold_ids: Sequence[str]) -> None:
        self._items.delete([self._key(each) for each in hold_ids])

    def forget(self, expiry_max_ms: int) -> None:
        """Leaves it to DynamoDB, which deletes no item that is extended meanwhile."""

    def _key(self, hold_id: str) -> Item:
        return {"tableId": self._table_id, "id": hold_id}


def _expiry(expiry_ms: int) -> Item:
    return {"expiryMs": expiry_ms, "expiryDate": (expiry_ms + MARGIN_MS) // 1000 + 1}
