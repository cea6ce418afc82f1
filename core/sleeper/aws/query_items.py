"""The items of queries in DynamoDB, and conditions on them."""

from sleeper.aws.dynamo import Item
from sleeper.jobs.query_tracker import QueryRun, QueryState, QueryStatus

STATUS_ATTRIBUTES = (
    "queryId",
    "subQueryId",
    "lastKnownState",
    "rowCount",
    "lastUpdateTime",
    "errors",
    "tableId",
)


def key_of(query_id: str, sub_query_id: str) -> Item:
    """Returns the key of a query or of one of its subqueries."""
    return {"queryId": query_id, "subQueryId": sub_query_id}


def key_only(item: Item) -> Item:
    """Returns the item's key."""
    return key_of(item["queryId"], item["subQueryId"])


def state_of(item: Item) -> QueryState:
    """Returns the state that the item has."""
    return QueryState(item["lastKnownState"])


def run_of_item(item: Item) -> QueryRun:
    """Returns the newest run of an id, from the query's item."""
    names = ("fingerprint", "run", "messages")
    fingerprint, run, messages = (item.get(name, "") for name in names)
    return QueryRun(item["queryId"], fingerprint, run, messages, state_of(item))


def run_condition(run: str) -> str:
    """Returns the condition that the query's item is of the run `:run`."""
    return "#run = :run" if run else "attribute_not_exists(#run)"


def unchanged_condition(run: QueryRun) -> str:
    """Returns the condition that the query's item has not changed its run and state since."""
    return f"{run_condition(run.run)} AND #lastKnownState = :state"


def run_values(run: QueryRun) -> Item:
    """Returns the values of `unchanged_condition`."""
    return {"run": run.run or None, "state": run.state.value}


def status_of(item: Item) -> QueryStatus:
    """Returns the status of a query or subquery."""
    return QueryStatus(
        query_id=item["queryId"],
        sub_query_id=item["subQueryId"],
        state=state_of(item),
        row_count=item.get("rowCount", 0),
        updated_ms=item["lastUpdateTime"] * 1000,
        error=item.get("errors"),
        table_id=item.get("tableId"),
    )
