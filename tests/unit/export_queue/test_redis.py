"""The exporter to Redis: its settings, the hashes that it writes, and errors of the server."""

import socket
import sys
from collections.abc import Iterator
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from sleeper.errors import InvalidRequestError, UnavailableError
from sleeper.export_queue.exporter import RefusedExportsError
from sleeper.export_queue.exporters import check_exporter, open_exporter
from sleeper.instance import Instance
from sleeper.opening import create_instance, open_instance
from sleeper.schema.model import DecimalType, ListType, MapType, PrimitiveType
from tests.export_batches import make_batch, make_queue
from tests.servers.certificates import make_certificate
from tests.servers.redis import RedisServer, redis_server

LONG, STRING = PrimitiveType.LONG, PrimitiveType.STRING
AMOUNT = {"amount": LONG}


@pytest.fixture
def instance(tmp_path: Path) -> Iterator[Instance]:
    create_instance(tmp_path / "instance", "test")
    opened = open_instance(tmp_path / "instance")
    yield opened
    opened.close()


@pytest.mark.parametrize(
    "text",
    [
        "rediss://cache.example",
        "rediss://writer@cache.example:6380/15?prefix=a%3Ab%3A",
        "rediss://[::1]:6379/0",
    ],
)
def test_a_url_is_accepted(instance: Instance, text: str) -> None:
    check_exporter(instance, make_queue(text))


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("redis:", "the URL has no host"),
        ("redis:cache.example", "the URL has no host"),
        ("redis://:6379/0", "the URL has no host"),
        ("redis://cache.example:word", "the URL is invalid"),
        ("redis://cache.example/shop", "the path of the URL is not the number of a database"),
        ("redis://cache.example/99999", "the path of the URL is not the number of a database"),
        ("redis://cache.example/0?prefix=", "the URL has other parameters than one"),
        ("redis://cache.example/0?prefix=a&prefix=b", "the URL has other parameters than one"),
        ("redis://cache.example/0?prefix=__gone:", "the URL has other parameters than one"),
        ("redis://cache.example/0?db=1", "the URL has other parameters than one"),
        ("redis://user:word@cache.example/0", "the URL has a password"),
        ("redis://:word@cache.example/0", "the URL has a password"),
    ],
)
def test_an_invalid_url_is_refused_without_its_password(
    instance: Instance, text: str, problem: str
) -> None:
    with pytest.raises(InvalidRequestError, match=f"'counts': exporter redis: {problem}") as raised:
        check_exporter(instance, make_queue(text))
    assert "word@" not in str(raised.value)


def test_an_unknown_option_is_refused(instance: Instance) -> None:
    queue = make_queue("rediss://cache.example", options={"ssl.ca.locaton": "x"})
    with pytest.raises(InvalidRequestError, match=r"did you mean ssl\.ca\.location"):
        check_exporter(instance, queue)


def test_a_missing_client_is_named_with_its_installation(
    instance: Instance, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "redis", None)
    with pytest.raises(InvalidRequestError, match=r"pip install 'sleeper-store\[redis\]'"):
        check_exporter(instance, make_queue("rediss://cache.example"))


def test_redis_without_tls_is_for_this_machine_unless_that_is_said(instance: Instance) -> None:
    for text in ("redis://localhost/0", "redis://127.0.0.1:1/0"):
        check_exporter(instance, make_queue(text))
    queue = make_queue("redis://cache.example/0")
    with pytest.raises(InvalidRequestError, match=r"cache\.example without TLS.*insecure=true"):
        check_exporter(instance, queue)
    # Nothing is connected: a stored definition waits for its repair.
    with pytest.raises(InvalidRequestError, match="a URL rediss:"):
        open_exporter(instance, queue)
    insecure = make_queue("redis://cache.example/0", options={"insecure": "true"})
    check_exporter(instance, insecure)
    assert insecure.exporter.shown == "redis://cache.example/0 (insecure)"


@pytest.mark.slow
def test_tls_of_redis_trusts_named_authorities_and_the_hosts_name_only(
    instance: Instance, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    certificate = make_certificate(tmp_path / "server.pem", "cache.test")
    resolve = socket.getaddrinfo

    def resolve_test(host: Any, *arguments: Any, **options: Any) -> Any:
        address = "127.0.0.1" if str(host).endswith(".test") else host
        return resolve(address, *arguments, **options)

    monkeypatch.setattr(socket, "getaddrinfo", resolve_test)

    def send(server: RedisServer, host: str, **options: str) -> None:
        url = f"rediss://{host}:{server.port}/0"
        queue = make_queue(url, password="env:RECEIVER_PASSWORD", values=AMOUNT, options=options)
        exporter = open_exporter(instance, queue)
        try:
            exporter.export(make_batch(queue, [("k", {"amount": 1}, 1)]))
        finally:
            exporter.close()

    with redis_server(tmp_path, certificate) as server:
        monkeypatch.setenv("RECEIVER_PASSWORD", server.password)
        with pytest.raises(UnavailableError, match="certificate verify failed"):
            send(server, "cache.test")
        authority = {"ssl.ca.location": str(certificate)}
        with pytest.raises(UnavailableError, match="Hostname mismatch"):
            send(server, "other.test", **authority)
        send(server, "cache.test", **authority)
        with server.client() as client:
            assert client.hget("counts:k", "amount") == "1"


class Cache:
    """A server, and exports to it."""

    def __init__(self, instance: Instance, server: RedisServer) -> None:
        self.instance = instance
        self.server = server

    def send(self, *exports: Any, query: str = "", **settings: Any) -> None:
        settings.setdefault("values", AMOUNT)
        queue = make_queue(self.server.url + query, password="env:RECEIVER_PASSWORD", **settings)
        exporter = open_exporter(self.instance, queue)
        try:
            exporter.export(make_batch(queue, exports))
        finally:
            exporter.close()

    def run(self, *command: Any) -> Any:
        with self.server.client() as client:
            return client.execute_command(*command)

    def hashes(self) -> dict[str, dict[str, str]]:
        with self.server.client() as client:
            return {n: client.hgetall(n) for n in client.scan_iter("*") if client.type(n) == "hash"}


@pytest.fixture
def cache(instance: Instance, own_redis: RedisServer, monkeypatch: pytest.MonkeyPatch) -> Cache:
    monkeypatch.setenv("RECEIVER_PASSWORD", own_redis.password)
    return Cache(instance, own_redis)


@pytest.mark.slow
def test_values_of_every_type_are_text(cache: Cache) -> None:
    given: dict[str, tuple[Any, Any, str]] = {
        "int": (PrimitiveType.INT, -1, "-1"),
        "text": (STRING, 'a"b', 'a"b'),
        "bytes": (PrimitiveType.BYTE_ARRAY, b"\x00\xff", "AP8="),
        "float": (PrimitiveType.FLOAT, 1.5, "1.5"),
        "double": (PrimitiveType.DOUBLE, 0.1, "0.1"),
        "boolean": (PrimitiveType.BOOLEAN, True, "true"),
        "time": (
            PrimitiveType.TIMESTAMP,
            datetime(2024, 1, 2, 3, 4, 5, 6, UTC),
            "2024-01-02T03:04:05.000006Z",
        ),
        "date": (PrimitiveType.DATE, date(2024, 2, 29), "2024-02-29"),
        "decimal": (DecimalType(20, 3), Decimal("-1.500"), "-1.500"),
        "list": (ListType(LONG), [1, 2], "[1,2]"),
        "map": (MapType(STRING, LONG), [("a", 1)], '{"a":1}'),
        "none": (LONG, None, ""),
    }
    types = {name: kind for name, (kind, _, _) in given.items()}
    cache.send(("k", {name: value for name, (_, value, _) in given.items()}, 7), values=types)
    expected = {name: text for name, (_, value, text) in given.items() if value is not None}
    assert cache.hashes() == {"counts:k": {"sequence": "7", **expected}}


@pytest.mark.slow
def test_names_begin_with_the_prefix_and_several_fields_of_a_key_are_a_list(cache: Cache) -> None:
    keys = {"word": STRING, "day": LONG}
    cache.send((('a"', 1), {"amount": 2}, 3), keys=keys, query="?prefix=p%2F")
    assert cache.hashes() == {'p/["a\\"",1]': {"sequence": "3", "amount": "2"}}


@pytest.mark.slow
def test_a_newer_export_removes_the_fields_of_the_older_one(cache: Cache) -> None:
    types = {"amount": LONG, "word": STRING}
    cache.send(("k", {"amount": 1, "word": "w"}, 1), values=types)
    cache.send(("k", {"amount": 2, "word": None}, 2), values=types)
    assert cache.hashes() == {"counts:k": {"sequence": "2", "amount": "2"}}


@pytest.mark.slow
def test_a_tombstone_expires_after_a_day_and_goes_when_the_key_comes_back(cache: Cache) -> None:
    cache.send(("k", {"amount": 1}, 1))
    cache.send(("k", None, 2))
    assert cache.run("GET", "__gone:counts:k") == "2"
    assert 86_000 < cache.run("TTL", "__gone:counts:k") <= 86_400
    cache.send(("k", {"amount": 3}, 3))
    assert cache.run("KEYS", "*") == ["counts:k"]
    assert cache.run("TTL", "counts:k") == -1


@pytest.mark.slow
def test_sequences_are_compared_as_numbers_of_64_bits(cache: Cache) -> None:
    for sequence, kept in (
        (9, 9),
        (10, 10),
        (9, 10),
        (2**63 - 2, 2**63 - 2),
        (2**63 - 1, 2**63 - 1),
    ):
        cache.send(("k", {"amount": 0}, sequence))
        assert cache.hashes()["counts:k"]["sequence"] == str(kept)


@pytest.mark.slow
def test_only_exports_of_keys_that_are_no_hashes_are_refused(cache: Cache) -> None:
    cache.run("SET", "counts:b", "text")
    exports = [(key, {"amount": n}, n) for n, key in enumerate("abc")]
    with pytest.raises(RefusedExportsError, match="WRONGTYPE") as raised:
        cache.send(*exports)
    assert list(raised.value.reasons) == [1]
    assert sorted(cache.hashes()) == ["counts:a", "counts:c"]


@pytest.mark.slow
def test_a_batch_of_many_exports_takes_several_round_trips(cache: Cache) -> None:
    cache.run("SET", "counts:3000", "text")
    exports = [(n, {"amount": n}, 1) for n in range(5_000)]
    with pytest.raises(RefusedExportsError) as raised:
        cache.send(*exports, keys={"id": LONG})
    assert list(raised.value.reasons) == [3_000]
    assert cache.run("DBSIZE") == 5_000


@pytest.mark.slow
def test_exports_wait_while_the_server_refuses_writes_or_the_login(
    cache: Cache, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache.run("CONFIG", "SET", "maxmemory", "1")
    with pytest.raises(UnavailableError, match="used memory"):
        cache.send(("k", {"amount": 1}, 1))
    cache.run("CONFIG", "SET", "maxmemory", "0")
    monkeypatch.setenv("RECEIVER_PASSWORD", "not-the-password")
    with pytest.raises(UnavailableError, match="invalid username-password") as raised:
        cache.send(("k", {"amount": 1}, 1))
    assert "not-the-password" not in str(raised.value)
    monkeypatch.delenv("RECEIVER_PASSWORD")
    with pytest.raises(UnavailableError, match="variable RECEIVER_PASSWORD is not set"):
        cache.send(("k", {"amount": 1}, 1))
    monkeypatch.setenv("RECEIVER_PASSWORD", cache.server.password)
    cache.send(("k", {"amount": 1}, 1))
    assert len(cache.hashes()) == 1


@pytest.mark.slow
def test_a_restarted_server_gets_the_script_again(cache: Cache) -> None:
    queue = make_queue(cache.server.url, values=AMOUNT, password="env:RECEIVER_PASSWORD")
    exporter = open_exporter(cache.instance, queue)
    exporter.export(make_batch(queue, [("a", {"amount": 1}, 1)]))
    cache.server.stop()
    cache.server.start()
    exporter.export(make_batch(queue, [("b", {"amount": 1}, 1)]))
    exporter.close()
    assert sorted(cache.hashes()) == ["counts:a", "counts:b"]
