"""The simulated DynamoDB: limits, retries, and what AWS leaves open."""

from collections.abc import Iterator
from typing import Any

import pytest
from botocore.exceptions import ClientError, ReadTimeoutError

from simulation.calls import Call, Fault
from simulation.services.world import Services
from sleeper.aws.clients import make_client
from sleeper.aws.dynamo import DynamoItems
from sleeper.aws.errors import RefusedError, ThrottledError
from sleeper.errors import ConflictError, InvalidRequestError, UnavailableError
from tests.simulation.services.worlds import World, dynamo_table


@pytest.fixture
def client(services: Services) -> Any:
    return services.client("dynamodb")


@pytest.fixture
def items(client: Any) -> DynamoItems:
    return DynamoItems(client, dynamo_table(client), "test")


def item(sort: str, **values: Any) -> dict[str, Any]:
    return {"k": "a", "s": sort, **values}


def sorts(rows: Iterator[dict[str, Any]]) -> list[str]:
    return [row["s"] for row in rows]


def test_a_conditional_put_whose_response_is_lost_fails_against_itself(
    items: DynamoItems, world: World
) -> None:
    world.faults = [Fault.LOST]
    with pytest.raises(RefusedError):
        items.put(item("1"), "attribute_not_exists(#k)")
    assert items.get(item("1")) == item("1")
    assert world.waits == [0.0125]


def test_a_transaction_whose_response_is_lost_succeeds_with_its_token(
    items: DynamoItems, world: World
) -> None:
    writes = [items.put_write(item("1"), "attribute_not_exists(#k)")]
    for token in ("token", None):
        world.faults = [Fault.LOST, Fault.UNAVAILABLE, Fault.THROTTLED]
        items.transact(writes, token)
        items.delete([item("1")])


def test_a_token_applies_once_in_ten_minutes(items: DynamoItems, world: World) -> None:
    writes = [items.update_write(item("1"), "ADD #n :one", None, {"one": 1})]
    items.transact(writes, "token")
    world.pass_seconds(599)
    items.transact(writes, "token")
    assert items.get(item("1")) == item("1", n=1)
    with pytest.raises(InvalidRequestError, match="IdempotentParameterMismatch"):
        items.transact([items.put_write(item("2"))], "token")
    world.pass_seconds(2)
    items.transact(writes, "token")
    assert items.get(item("1")) == item("1", n=2)


def test_the_last_error_is_raised_after_the_attempts_of_boto3(
    client: Any, items: DynamoItems, world: World
) -> None:
    world.faults = [Fault.LOST] * 100
    world.made.clear()
    with pytest.raises(ReadTimeoutError):
        client.get_item(TableName="table", Key={"k": {"S": "a"}, "s": {"S": "1"}})
    real = make_client("dynamodb", region_name="eu-west-2")
    assert len(world.made) == real.meta.config.retries["total_max_attempts"]
    assert 5 < sum(world.waits) < 30


def test_some_faults_last_for_all_attempts(items: DynamoItems, world: World) -> None:
    world.chosen = lambda probability: probability == 0.4
    world.faults = [Fault.LOST]
    with pytest.raises(UnavailableError):
        items.put(item("1"))
    assert 5 < sum(world.waits) < 30
    assert items.get(item("1")) == item("1")


def test_a_transaction_is_all_or_nothing_and_names_the_refused_writes(items: DynamoItems) -> None:
    items.put(item("2"))
    writes = [items.put_write(item(s), "attribute_not_exists(#k)") for s in "1234"]
    with pytest.raises(RefusedError) as refused:
        items.transact(writes)
    assert refused.value.items == (1,)
    assert sorts(items.query("#k = :k", {"k": "a"})) == ["2"]


@pytest.mark.parametrize(
    ("count", "size", "message"),
    [
        (101, 1, "less than or equal to 100"),
        (12, 390_000, "4 MB"),
        (1, 410_000, "ValidationError"),
        (0, 1, "less than or equal"),
    ],
)
def test_the_limits_of_transactions(
    items: DynamoItems, count: int, size: int, message: str
) -> None:
    writes = [items.put_write(item(str(i), body=b"x" * size)) for i in range(count)]
    with pytest.raises((InvalidRequestError, IndexError), match=None if not count else message):
        items.transact_once(writes)
    assert sorts(items.scan()) == []


def test_an_item_has_at_most_400_kib(items: DynamoItems) -> None:
    items.put(item("1", body=b"x" * 409_000))
    with pytest.raises(InvalidRequestError, match="Item size"):
        items.put(item("1", body=b"x" * 410_000))


def test_pages_end_at_a_megabyte_and_go_on(items: DynamoItems, client: Any) -> None:
    for i in range(9):
        items.put(item(str(i), body=b"x" * 300_000))
    pages = list(items.query_pages("#k = :k", {"k": "a"}))
    assert [len(page) for page in pages] == [4, 4, 1]
    newest = items.query("#k = :k AND #s < :s", {"k": "a", "s": "7"}, newest_first=True)
    assert sorts(newest) == list("6543210")
    assert sorted(sorts(items.scan())) == list("012345678")
    assert [len(p) for p in items.query_pages("#k = :k", {"k": "a"}, page_size=3)] == [3, 3, 3, 0]


def test_an_index_follows_its_table_later(items: DynamoItems, world: World) -> None:
    items.put(item("1", kind="job", at=1))
    world.chosen = lambda _probability: True
    query = ("#kind = :kind", {"kind": "job"}, "recent")
    assert list(items.query(*query)) == []
    world.pass_seconds(3)
    items.put(item("2", kind="job", at=2))
    assert sorts(items.query(*query)) == ["1"]
    world.chosen = lambda _probability: False
    assert sorts(items.query(*query)) == ["1", "2"]


def test_a_consistent_read_is_never_late_and_another_may_be(
    items: DynamoItems, client: Any, world: World
) -> None:
    items.put(item("1", n=1))
    items.put(item("1", n=2))
    world.chosen = lambda _probability: True
    key = {"k": {"S": "a"}, "s": {"S": "1"}}
    assert items.get(item("1")) == item("1", n=2)
    assert client.get_item(TableName="table", Key=key)["Item"]["n"] == {"N": "1"}
    world.pass_seconds(10)
    assert client.get_item(TableName="table", Key=key)["Item"]["n"] == {"N": "2"}


def test_a_transaction_in_progress_shows(items: DynamoItems, client: Any, world: World) -> None:
    items.put(item("1", n=0))
    seen: list[Any] = []
    write = items.update_write(item("1"), "SET #n = :n", None, {"n": 1})
    get = {"Get": {"TableName": "table", "Key": {"k": {"S": "a"}, "s": {"S": "1"}}}}

    def watch(call: Call) -> None:
        if call.operation != "transact_write_items":
            return
        world.watch = lambda _call: None
        world.chosen = lambda probability: probability == 0.5
        seen.extend(row.get("n") for row in items.query("#k = :k", {"k": "a"}))
        seen.append(items.get(item("1")))
        for conflict in (
            lambda: items.put(item("1")),
            lambda: items.transact([write]),
            lambda: client.transact_get_items(TransactItems=[get]),
        ):
            with pytest.raises((ConflictError, ClientError), match="TransactionConflict"):
                conflict()
        world.chosen = lambda _probability: False

    world.watch = watch
    items.transact([write, items.put_write(item("2", n=1))])
    assert seen == [0, item("1", n=1)]
    assert [row["n"] for row in items.query("#k = :k", {"k": "a"})] == [1, 1]
    response = client.transact_get_items(TransactItems=[get])["Responses"]
    assert response[0]["Item"]["n"] == {"N": "1"}


def test_batches_are_carried_out_in_part(items: DynamoItems, world: World) -> None:
    for i in range(10):
        items.put(item(str(i)))
    answers = iter([True, False, True] * 100)
    world.chosen = lambda _probability: next(answers)
    read = items.get_all([item(str(i)) for i in range(10)], ["s"])
    assert sorted(sorts(iter(read))) == list("0123456789")
    items.delete([item(str(i)) for i in range(10)])
    world.chosen = lambda _probability: False
    assert list(items.scan()) == []


def test_one_partition_key_takes_a_thousand_write_units_a_second(
    items: DynamoItems, services: Services, world: World
) -> None:
    services.dynamo.capacity.is_limited = True
    start = world.now
    for i in range(2_000):
        items.put(item("1", n=i))
    assert 500 < world.now - start < 2_000
    assert services.dynamo.capacity.writes[("table", "", "a")] == 2_000
    for i in range(1_000):
        items.put({"k": f"other {i}", "s": "1"})
    assert world.now - start < 2_000


def test_a_transaction_uses_twice_the_units_and_is_throttled(
    items: DynamoItems, services: Services, world: World
) -> None:
    services.dynamo.capacity.is_limited = True
    for i in range(500):
        items.transact_once([items.put_write(item("1", n=i))])
    with pytest.raises(ThrottledError):
        items.transact_once([items.put_write(item("1", n=0))])
    world.pass_seconds(1)
    items.transact_once([items.put_write(item("1", n=0))])


def test_an_expired_item_is_deleted_within_two_days(
    client: Any, items: DynamoItems, world: World
) -> None:
    setting = {"Enabled": True, "AttributeName": "expiry"}
    client.update_time_to_live(TableName="table", TimeToLiveSpecification=setting)
    expiry = world.now // 1000 + 60
    for i in range(20):
        items.put(item(str(i), expiry=expiry))
    items.put(item("lasting"))
    world.pass_seconds(24 * 3600)
    assert 1 < len(list(items.scan())) < 21
    world.pass_seconds(25 * 3600)
    assert sorts(items.scan()) == ["lasting"]


@pytest.mark.parametrize(
    ("request_", "message"),
    [
        ({"ConditionExpression": "#k ="}, "Syntax error"),
        ({"ConditionExpression": "k = :missing"}, "not defined"),
        ({"ConditionExpression": ""}, "can not be empty"),
        ({"ExpressionAttributeValues": {":x": {"S": ""}}}, "unused"),
        ({"UpdateExpression": "SET k = :x", "ExpressionAttributeValues": {":x": {"S": ""}}}, "key"),
        ({"UpdateExpression": "SET a = b"}, "does not exist"),
        ({"UpdateExpression": "REMOVE a, a"}, "overlap"),
        ({"UpdateExpression": "SET a.b = k"}, "path"),
        ({"Key": {"k": {"S": "a"}}}, "does not match the schema"),
        ({"Key": {"k": {"S": "a"}, "s": {"N": "1"}}}, "Type mismatch"),
        ({"Key": {"k": {"S": "a"}, "s": {"S": ""}}}, "empty string"),
    ],
)
def test_invalid_requests(
    client: Any, items: DynamoItems, request_: dict[str, Any], message: str
) -> None:
    key = {"k": {"S": "a"}, "s": {"S": "1"}}
    with pytest.raises(ClientError, match=message) as error:
        client.update_item(**{"TableName": items.table_name, "Key": key, **request_})
    assert error.value.response["Error"]["Code"] == "ValidationException"


def test_members_of_maps_and_lists_are_changed(client: Any, items: DynamoItems) -> None:
    items.put(item("1", m={"a": 1}, l=[1, 2, 3]))
    change = "SET #m.#b = :two, #l[0] = :two REMOVE #m.#a, #l[1], #l[2]"
    assert items.update(item("1"), change, None, {"two": 2}) == item("1", m={"b": 2}, l=[2])
