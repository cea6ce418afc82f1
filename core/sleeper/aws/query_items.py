"""Items of the query tracker on DynamoDB (FORMATS: Query results, the tracker table)."""

from sleeper.aws.dynamo_batches import Item
from sleeper.aws.tracker_items import number, text
from sleeper.query_service.tracker import ERROR_CHARACTERS_MAX, QueryState, QueryStatus

STATUS_NAMES = "queryId, subQueryId, lastKnownState, rowCount, lastUpdateTime, errors, tableId"
"""What `status_of` reads."""
UNFINISHED = "lastKnownState IN (:queued, :running)"
"""A condition, over the values of `STATES`."""
STATES = {":queued": {"S": "QUEUED"}, ":running": {"S": "IN_PROGRESS"}}


def key_of(query_id: str, sub_query_id: str) -> Item:
    """The key of a query's item or a subquery's."""
    return {"queryId": {"S": query_id}, "subQueryId": {"S": sub_query_id}}


def sub_id_of(item: Item) -> str:
    """The item's subquery id."""
    return str(item["subQueryId"]["S"])


def state_of(item: Item) -> QueryState:
    """The item's state."""
    return QueryState(item["lastKnownState"]["S"])


def status_of(item: Item) -> QueryStatus:
    """The item as the port has it."""
    return QueryStatus(
        query_id=item["queryId"]["S"],
        sub_query_id=sub_id_of(item),
        state=state_of(item),
        row_count=number(item, "rowCount") or 0,
        updated_ms=int(item["lastUpdateTime"]["N"]) * 1000,
        error=text(item, "errors"),
        table_id=text(item, "tableId"),
    )


def error_text(error: str) -> Item:
    """The error as an item has it: cut."""
    return {"S": error[:ERROR_CHARACTERS_MAX]}
