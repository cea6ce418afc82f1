"""Processors, which read and write the store for each message of a stream."""

import tempfile
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import sleeper
from sleeper.adjunct import AdjunctStore, Envelope
from sleeper.adjunct.config import parse_config
from sleeper.adjunct.definition import EngineType, StoreDefinition
from sleeper.adjunct.engines.engine import Writes
from sleeper.adjunct.extraction import ExtractorSource, Process, ProcessedStore, open_extract
from sleeper.adjunct.feeds.opening import FeedContext, open_feed
from sleeper.adjunct.pushed_store import PushedStore
from sleeper.adjunct.versions.store import Store
from sleeper.errors import DataError, InvalidRequestError, SleeperError, UserCodeError
from tests.clock import FakeClock
from tests.examples import examples
from tests.fake_log import FakeLog
from tests.unit.adjunct.log_stores import LogStore
from tests.wheels import make_wheel


class Orders:
    """Counts the orders of a customer, with an entry for each item; None forgets the customer."""

    def process(self, envelope: Envelope, store: ProcessedStore) -> None:
        customer, item = envelope.key, envelope.value
        state = store.get(customer) or {"count": 0, "items": []}
        if item is None:
            for each in state["items"]:
                store.delete(f"{customer}/{each}")
            store.delete(customer)
            return
        if item == "bad":
            store.put(f"{customer}/{item}", 1)
            raise ValueError("no such item")
        state["count"] += 1
        if item not in state["items"]:
            state["items"].append(item)
        store.put(customer, state)
        name = f"{customer}/{item}"
        store.put(name, (store.get(name) or 0) + 1)


def fold(messages: list[tuple[str, str | None]]) -> dict[str, Any]:
    """Returns what a store of orders has after the messages."""
    kept: dict[str, list[str]] = {}
    for customer, item in messages:
        kept.setdefault(customer, []).append(item or "")
        if item is None:
            del kept[customer]
    values: dict[str, Any] = {}
    for customer, items in kept.items():
        values[customer] = {"count": len(items), "items": list(dict.fromkeys(items))}
        values |= {f"{customer}/{item}": number for item, number in Counter(items).items()}
    return values


def opened_process(made: object) -> Process:
    process = open_extract(
        "words", "orders", ExtractorSource(made), lambda: pytest.fail("opened an instance")
    )
    assert isinstance(process, Process)
    return process


ORDERS = opened_process(Orders)
KINDS = pytest.mark.parametrize("kind", list(EngineType))


@KINDS
def test_a_processor_sees_the_store_and_writes_several_entries(
    tmp_path: Path, kind: EngineType
) -> None:
    log = FakeLog(1)
    messages: list[tuple[str, str | None]] = [("ann", "pen"), ("bob", "cup"), ("ann", "pen")]
    for each in messages:
        log.send(*each)
    opened = LogStore(tmp_path, log, kind=kind, convert=ORDERS)
    assert opened.update() == fold(messages)  # one batch, and one of its own values
    more: list[tuple[str, str | None]] = [("ann", "cup"), ("bob", None), ("ann", "pen")]
    for each in more:
        log.send(*each)
    assert opened.update() == fold(messages + more)
    assert opened.content()["ann"] == {"count": 4, "items": ["pen", "cup"]}
    opened.close()


def test_a_processor_of_datasets_sees_the_one_being_built(tmp_path: Path) -> None:
    log = FakeLog(1)
    opened = LogStore(tmp_path, log, is_bounded=True, convert=ORDERS)
    for name, items in (("v1", ["pen", "pen"]), ("v2", ["cup"])):
        for item in items:
            log.send("ann", item)
            opened.feed.update()
        log.end(name)
        assert opened.update() == fold([("ann", item) for item in items])
    opened.close()


@KINDS
def test_a_failure_names_the_message_and_writes_nothing_of_it(
    tmp_path: Path, kind: EngineType
) -> None:
    log = FakeLog(1)
    opened = LogStore(tmp_path, log, kind=kind, convert=ORDERS)
    opened.update()
    for item in ("pen", "bad", "cup"):
        log.send("ann", item)
    expected = r"store 'words': extractor 'orders' failed for fake, partition 0, offset 1: "
    for _ in range(2):
        with pytest.raises(UserCodeError, match=f"{expected}ValueError: no such item"):
            opened.feed.update()
        assert opened.content() == fold([("ann", "pen")])
        assert opened.state.positions["0"] == "1"
    log.partitions["0"].messages[1] = ("ann", "ink", False)
    assert opened.update() == fold([("ann", "pen"), ("ann", "ink"), ("ann", "cup")])
    opened.close()


class Wrong:
    """Does what a processor may not do, and catches the errors."""

    view: ProcessedStore | None = None

    def process(self, envelope: Envelope, store: ProcessedStore) -> None:
        store.put("kept", 1)
        try:
            if envelope.value == "key":
                store.put(1.5, 1)
            elif envelope.value == "type":
                store.get(7)
            elif envelope.value == "value":
                store.put("k", object())
            elif envelope.value == "later":
                assert self.view is not None
                self.view.put("k", 1)
            self.view = store
        except DataError:
            pass


@pytest.mark.parametrize(
    ("value", "kind", "problem"),
    [
        ("key", DataError, "float 1.5 does not fit"),
        ("type", DataError, "int 7 does not fit"),
        ("value", DataError, "value of type object"),
        ("later", UserCodeError, "used after the call of process for fake, partition 0, offset 0"),
    ],
)
def test_an_error_of_the_store_cannot_be_caught(
    tmp_path: Path, value: str, kind: type[SleeperError], problem: str
) -> None:
    log = FakeLog(1)
    log.send("a", "fine")
    opened = LogStore(tmp_path, log, convert=opened_process(Wrong()))
    opened.update()
    log.send("b", value)
    with pytest.raises(kind, match=f"partition 0, offset 1: .*{problem}"):
        opened.feed.update()
    assert opened.content() == {"kept": 1}
    opened.close()


def test_values_are_copies(tmp_path: Path) -> None:
    class Changes:
        def process(self, envelope: Envelope, store: ProcessedStore) -> None:
            value = store.get("a") or [0]
            value.append(envelope.value)
            if envelope.value != 2:
                store.put("a", value)
            value.append("later")

    log = FakeLog(1)
    opened = LogStore(tmp_path, log, convert=opened_process(Changes))
    for number in range(4):
        log.send("a", number)
    assert opened.update() == {"a": [0, 0, 1, 3]}
    opened.close()


class Killed(BaseException):
    """The process dies."""


def kill_at_write(opened: LogStore, is_written: bool) -> None:
    """Makes the process die before or after its next write."""
    engine = opened.store.serving.engine
    apply = engine.apply

    def die(writes: Iterable[Writes], state: bytes) -> None:
        if is_written:
            apply(writes, state)
        raise Killed

    engine.apply = die  # type: ignore[method-assign]


CUSTOMERS = st.sampled_from(["ann", "bob", "cid"])
ITEMS = st.sampled_from(["pen", "cup", "bad", None])
ENDS = st.sampled_from(["update", "reopen", "kill before", "kill after"])
STEPS = st.lists(st.one_of(st.tuples(CUSTOMERS, ITEMS), ENDS), max_size=40)


@settings(max_examples=examples(25), deadline=None)
@given(STEPS)
def test_each_message_counts_once(steps: list[Any]) -> None:
    """The store always has the messages before its position, and no others."""
    log = FakeLog(1)
    messages: list[tuple[str, str | None]] = []
    with tempfile.TemporaryDirectory() as folder:
        opened = LogStore(Path(folder), log, convert=ORDERS, bootstrap=False)

        def check() -> int:
            position = int(opened.state.positions.get("0", 0))
            assert opened.content() == fold(messages[:position])
            return position

        for step in [*steps, "update"]:
            if isinstance(step, tuple):
                log.send(*step)
                messages.append(step)
                continue
            if step.startswith("kill"):
                kill_at_write(opened, step == "kill after")
            try:
                opened.feed.update()
                assert check() == len(messages)
            except Killed:
                step = "reopen"
            except UserCodeError:
                at = check()
                assert messages[at][1] == "bad"
                log.partitions["0"].messages[at] = ("ann", "ink", False)
                messages[at] = ("ann", "ink")
            if step == "reopen":
                opened.close()
                opened = LogStore(Path(folder), log, convert=ORDERS, bootstrap=False)
                check()
        opened.close()


def test_a_stream_job_counts_a_redelivered_message_once(tmp_path: Path) -> None:
    (settings_,) = parse_config({"stores.words.adstore.input": "s.orders"}).stores
    store = PushedStore(settings_, tmp_path, FakeClock(), ORDERS)
    store.start(["0"], {})
    for offset in (0, 1, 0, 1, 2):
        store.save(Envelope("s.orders", "0", str(offset), str(offset + 1), "ann", "pen"))
    assert dict(store.all()) == fold([("ann", "pen")] * 3)
    with pytest.raises(InvalidRequestError, match="offset x is no number"):
        store.save(Envelope("s.orders", "0", "x", "y", "ann", "pen"))
    store.close()


@pytest.mark.parametrize(
    ("source", "partition", "problem"),
    [
        ("table:people", None, "table:people is loaded again"),
        ("dynamodb:people", None, "dynamodb:people is loaded again"),
        ("kinesis:people", "0/2", "partition 0/2 has parts of shards"),
    ],
)
def test_inputs_that_deliver_more_than_once_are_refused(
    instance: sleeper.Instance,
    monkeypatch: pytest.MonkeyPatch,
    source: str,
    partition: str | None,
    problem: str,
) -> None:
    monkeypatch.setenv("AWS_DEFAULT_REGION", "eu-west-1")
    instance.create_table(
        "people", {"rowKeyFields": [{"name": "id", "type": "LongType"}], "valueFields": []}
    )
    options: dict[str, Any] = {"type": "memory", "partition": partition, "extractor": Orders}
    with pytest.raises(InvalidRequestError, match=f"Orders' is a processor, .*{problem}"):
        AdjunctStore.open("people", source, instance=instance, **options)


def test_a_wheel_registers_a_processor(instance: sleeper.Instance, tmp_path: Path) -> None:
    code = "class Counts:\n    def process(self, envelope, store):\n        store.put('n', 1)\n"
    instance._ports.code.registry.add(
        [make_wheel(tmp_path, "counts", {"counts": code}, extractors={"Counts": "counts:Counts"})]
    )
    definition = StoreDefinition(
        "counts", "kafka://127.0.0.1:1/t", EngineType.MEMORY, extractor="Counts"
    )
    store = Store(definition, None, FakeClock())
    feed = open_feed(store, FeedContext(lambda: instance._ports))
    assert isinstance(feed._reader._extract, Process)  # type: ignore[attr-defined]
    feed.close()
    store.close()
