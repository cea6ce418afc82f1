"""Stores whose values have a time to live."""

import tempfile
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import sleeper
from sleeper.adjunct import AdjunctStore, Envelope
from sleeper.adjunct.config import parse_config
from sleeper.adjunct.definition import EngineType, decode_state
from sleeper.adjunct.engines import expiring
from sleeper.adjunct.engines.expiring import ExpiringEngine
from sleeper.adjunct.extraction import ExtractorSource, ProcessedStore, open_extract, own_pair
from sleeper.adjunct.feeds.feed import StartAction
from sleeper.adjunct.pushed_store import PushedStore
from sleeper.adjunct.versions.version import StoreReader
from sleeper.errors import InvalidRequestError
from tests.clock import FakeClock
from tests.examples import examples
from tests.fake_log import FakeLog
from tests.unit.adjunct.log_stores import LogStore

KINDS = pytest.mark.parametrize("kind", list(EngineType))
TTL_MS = 10_000


def stored_keys(opened: LogStore) -> int:
    """Returns the number of keys that the engine has, expired or not."""
    engine = opened.store.serving.engine
    assert isinstance(engine, ExpiringEngine)
    return len(list(engine._engine.scan(b"\x01", b"\x02")))


@KINDS
def test_a_value_is_returned_for_its_time_to_live(tmp_path: Path, kind: EngineType) -> None:
    log = FakeLog(1)
    log.send("a", 1)
    log.send("b", 1)
    opened = LogStore(tmp_path, log, kind=kind, ttl_ms=TTL_MS)
    opened.update()
    opened.now_ms += 6_000
    log.send("b", 2)
    opened.update()
    opened.now_ms += TTL_MS - 6_000 - 1
    version = opened.store.serving
    assert version.get_many(["a", "b"]) == [1, 2]
    before = version.scan()
    assert next(before) == ("a", 1)
    opened.now_ms += 1
    assert (version.get("a"), version.get_many(["a", "b"])) == (None, [None, 2])
    assert opened.content() == {"b": 2}
    assert list(before) == [("b", 2)]
    assert stored_keys(opened) == 2
    opened.update()
    assert stored_keys(opened) == 1
    opened.close()


class Copies:
    def process(self, envelope: Envelope, store: ProcessedStore) -> None:
        store.put(envelope.key, envelope.value)
        store.put(f"{envelope.key} copy", envelope.value)


@pytest.mark.parametrize("is_processed", [False, True])
def test_a_value_lives_from_the_time_of_its_message(tmp_path: Path, is_processed: bool) -> None:
    log = FakeLog(1)
    for number in range(3):
        log.now_ms = 1_000 + number * 4_000
        log.send(f"k{number}", number)
    process = open_extract(
        "words", "copies", ExtractorSource(Copies()), lambda: pytest.fail("opened an instance")
    )
    assert process is not None
    convert = process if is_processed else own_pair
    opened = LogStore(tmp_path, log, now_ms=12_000, ttl_ms=TTL_MS, convert=convert)

    def living() -> set[str]:
        return {key for key in opened.update() if "copy" not in key}

    assert living() == {"k1", "k2"}
    assert ("k2 copy" in opened.content()) is is_processed
    opened.feed.rebuild()
    opened.now_ms = 16_000
    assert living() == {"k2"}
    opened.close()


def test_a_sweep_examines_some_keys_at_a_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(expiring, "SWEPT_MAX", 4)
    log = FakeLog(1)
    for number in range(10):
        log.send(f"k{number}", number)
    opened = LogStore(tmp_path, log, ttl_ms=TTL_MS)
    for _ in range(3):  # a sweep of values that all live
        opened.update()
    opened.now_ms += TTL_MS
    kept = []
    for _ in range(4):
        opened.update()
        kept.append(stored_keys(opened))
    assert kept == [6, 2, 0, 0]
    log.send("k1", 1)
    opened.update()
    opened.now_ms += TTL_MS
    opened.update()
    assert (stored_keys(opened), opened.content()) == (0, {})
    opened.close()


def test_readers_of_the_files_agree_on_the_expiry(tmp_path: Path) -> None:
    log = FakeLog(1)
    log.send("a", 1)
    opened = LogStore(tmp_path, log, ttl_ms=TTL_MS)
    opened.update()
    clock = FakeClock(opened.now_ms + TTL_MS - 1)
    reader = StoreReader(tmp_path, "words", clock)
    assert reader.serving.get("a") == 1
    clock.now_ms += 1
    reader.refresh()
    assert reader.serving.get("a") is None
    reader.close()
    opened.close()


def test_a_restart_keeps_the_expiry_and_another_time_to_live_loads_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    log = FakeLog(1)
    log.send("a", 1)
    LogStore(tmp_path, log, ttl_ms=TTL_MS).close()
    opened = LogStore(tmp_path, log, ttl_ms=TTL_MS)
    opened.update()
    opened.close()
    later = opened.now_ms + TTL_MS
    opened = LogStore(tmp_path, log, ttl_ms=TTL_MS, now_ms=later)
    assert opened.action is StartAction.CONTINUE
    assert opened.update() == {}
    opened.close()
    for ttl in (None, 20_000, TTL_MS):
        opened = LogStore(tmp_path, log, ttl_ms=ttl, now_ms=later)
        assert opened.action is StartAction.LOAD
        assert opened.update() == {"a": 1}
        opened.close()
    assert "created again: its time to live was 10000 (expected None)" in caplog.text


def test_only_states_with_a_time_to_live_have_a_new_format(tmp_path: Path) -> None:
    formats = {}
    for ttl in (None, TTL_MS):
        opened = LogStore(tmp_path / str(ttl), FakeLog(1), ttl_ms=ttl)
        opened.update()
        content = opened.store.serving.engine.state() or b""
        formats[ttl] = decode_state(content, "test").format
        assert (b"ttl" in content) is (ttl is not None)
        opened.close()
    assert formats == {None: 1, TTL_MS: 2}


@pytest.mark.parametrize("kind", ["rocksdb", "memory"])
def test_a_store_of_a_table(instance: sleeper.Instance, tmp_path: Path, kind: str) -> None:
    fields = [{"name": "id", "type": "LongType"}]
    table = instance.create_table("numbers", {"rowKeyFields": fields, "valueFields": []})
    table.ingest(pa.table({"id": [1]}))
    with AdjunctStore.open(
        *("numbers", "table:numbers", tmp_path), instance=instance, type=kind, ttl="1h"
    ) as store:
        assert dict(store.all()) == {1: {}}
        serving = store._version.engine
        assert isinstance(serving, ExpiringEngine)
        serving._clock = FakeClock(2**50)
        assert (store.get(1), dict(store.all())) == (None, {})
        table.ingest(pa.table({"id": [2]}))
        store.refresh()
        assert list(dict(store.all())) == [2]
    with pytest.raises(InvalidRequestError, match="time to live 'soon'"):
        AdjunctStore.open("numbers", "table:numbers", tmp_path, instance=instance, ttl="soon")


def test_a_store_of_datasets_that_a_process_builds(tmp_path: Path) -> None:
    folder = tmp_path / "files"
    folder.mkdir()
    (folder / "a.csv").write_text("id,n\n1,1\n")
    (folder / "_SUCCESS").touch()
    with AdjunctStore.open(
        *("files", f"files:{folder}?key=id", tmp_path / "stores"), refresh_seconds=None, ttl="1h"
    ) as store:
        assert store.get(1) == {"n": 1}
        (folder / "b.csv").write_text("id,n\n2,2\n")
        (folder / "_SUCCESS").touch()
        store.refresh()
        assert store.get_many([1, 2]) == [{"n": 1}, {"n": 2}]
        serving = store._version.engine
        assert isinstance(serving, ExpiringEngine)
        serving._clock = FakeClock(2**50)
        assert dict(store.all()) == {}


def test_a_store_of_a_stream_job_is_swept_at_its_flush(tmp_path: Path) -> None:
    values = {"stores.words.adstore.input": "s.words", "stores.words.adstore.ttl": "10s"}
    (settings_,) = parse_config(values).stores
    clock = FakeClock()
    store = PushedStore(settings_, tmp_path, clock, own_pair)
    store.start(["0"], {})
    store.save(Envelope("s.words", "0", "0", "1", "a", 1))
    assert store.get("a") == 1
    clock.now_ms += TTL_MS
    assert store.get("a") is None
    store.flush()
    engine = store._version.engine
    assert isinstance(engine, ExpiringEngine)
    assert list(engine._engine.scan(b"\x01", b"\x02")) == []
    store.close()


SENDS = st.tuples(st.sampled_from("abc"), st.one_of(st.none(), st.integers(0, 9)))
STEPS = st.lists(st.one_of(SENDS, st.integers(0, 12_000), st.just("reopen")), max_size=30)


@settings(max_examples=examples(20), deadline=None)
@given(STEPS)
def test_a_store_has_what_was_written_within_its_time_to_live(steps: list[Any]) -> None:
    log, written, now_ms = FakeLog(1), {}, 1_000
    with tempfile.TemporaryDirectory() as folder:
        opened = LogStore(Path(folder), log, ttl_ms=TTL_MS)
        opened.update()
        for step in steps:
            if step == "reopen":
                opened.close()
                opened = LogStore(Path(folder), log, ttl_ms=TTL_MS, now_ms=now_ms)
                assert opened.action is StartAction.CONTINUE
            elif isinstance(step, int):
                opened.now_ms = now_ms = now_ms + step
            else:
                key, value = step
                log.send(key, value)
                written[key] = (value, now_ms + TTL_MS)
            opened.update()
            expected = {k: v for k, (v, end) in written.items() if v is not None and end > now_ms}
            assert opened.content() == expected
            assert stored_keys(opened) <= len(written)
        opened.close()
