"""The catalog of `sleeper serve`: engines attach to it, and what it does not offer or change."""

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import sleeper
from sleeper.opening import open_instance
from tests.engines import ENGINES, Readers, count_rows
from tests.servers.serving import Serving, serving

pytestmark = pytest.mark.slow

SCHEMA = json.dumps(
    {
        "rowKeyFields": [{"name": "id", "type": "LongType"}],
        "valueFields": [{"name": "tags", "type": {"ListType": {"elementType": "StringType"}}}],
    }
)
TOKEN = "a token of sixteen characters"


@pytest.fixture
def instance(tmp_path: Path) -> Iterator[sleeper.Instance]:
    with sleeper.create_instance(tmp_path / "instance") as opened:
        yield opened


@pytest.fixture
def server(instance: sleeper.Instance, tmp_path: Path) -> Iterator[Serving]:
    ports = open_instance(str(tmp_path / "instance"))
    with serving(ports) as served:
        yield served
    ports.close()


def create(instance: sleeper.Instance, name: str, **properties: str) -> sleeper.Table:
    named = {f"sleeper.table.{key.replace('__', '.')}": v for key, v in properties.items()}
    return instance.create_table(name, SCHEMA, properties=named)


def rows(*ids: int) -> list[dict[str, Any]]:
    return [{"id": i, "tags": ["a", str(i)]} for i in ids]


def get(server: Serving, path: str) -> Any:
    return server.get(f"/iceberg/v1/{path}").json()


def test_engines_read_the_newest_version(
    instance: sleeper.Instance, server: Serving, readers: Readers
) -> None:
    table = create(instance, "t")
    source = {"uri": f"{server.url}/iceberg", "table": "sleeper.t"}
    for ids in (range(10), range(5, 20)):
        table.ingest(rows(*ids))
        table.delete(keys=[[7]])
        expected = count_rows(table.query().to_arrow())
        for engine in ENGINES:
            assert count_rows(readers.read(engine, **source)) == expected, engine


def test_tables_are_listed_unless_readers_could_see_other_rows(
    instance: sleeper.Instance, server: Serving, readers: Readers
) -> None:
    create(instance, "b")
    create(instance, "a")
    create(instance, "filtered", filters="ageOff(id,1000)")
    create(instance, "restricted", query__callers='{"*": {"valueFields": []}}')
    uri = f"{server.url}/iceberg"
    assert readers.ask(engine="list", uri=uri) == ["sleeper.a", "sleeper.b"]
    for name in ("filtered", "restricted", "missing"):
        with pytest.raises(RuntimeError, match="NoSuchTable"):
            readers.read("pyiceberg", uri=uri, table=f"sleeper.{name}")


def test_answers_follow_the_protocol(instance: sleeper.Instance, server: Serving) -> None:
    create(instance, "t")
    assert get(server, "config")["overrides"] == {}
    assert get(server, "namespaces") == {"namespaces": [["sleeper"]]}
    assert get(server, "namespaces?parent=sleeper") == {"namespaces": []}
    assert get(server, "namespaces/sleeper")["namespace"] == ["sleeper"]
    assert get(server, "namespaces/sleeper/views") == {"identifiers": []}
    for path, kind in {
        "namespaces/other": "NoSuchNamespaceException",
        "namespaces/other/tables": "NoSuchNamespaceException",
        "namespaces/sleeper/tables/x": "NoSuchTableException",
        "namespaces/sleeper/views/x": "NoSuchViewException",
    }.items():
        error = get(server, path)["error"]
        assert (error["type"], error["code"]) == (kind, 404)


def test_changes_are_refused(instance: sleeper.Instance, server: Serving) -> None:
    create(instance, "t")
    for path in ("namespaces", "namespaces/sleeper/tables/t", "tables/rename"):
        answer = server.post(f"/iceberg/v1/{path}", {})
        assert answer.status_code == 400
        assert "read-only" in answer.json()["error"]["message"]


def test_callers_need_the_token(
    instance: sleeper.Instance, tmp_path: Path, readers: Readers
) -> None:
    create(instance, "t").ingest(rows(1))
    ports = open_instance(str(tmp_path / "instance"))
    with serving(ports, token=TOKEN) as server:
        source = {"uri": f"{server.url}/iceberg", "table": "sleeper.t"}
        assert readers.read("pyiceberg", token=TOKEN, **source).num_rows == 1
        with pytest.raises(RuntimeError, match="401"):
            readers.read("pyiceberg", **source)
    ports.close()


@pytest.mark.parametrize("is_instance", [True, False])
def test_a_read_only_server_offers_what_was_published_and_writes_nothing(
    instance: sleeper.Instance, tmp_path: Path, readers: Readers, is_instance: bool
) -> None:
    table = create(instance, "t")
    create(instance, "never", iceberg__location=str(tmp_path / "missing" / "never"))
    table.ingest(rows(1))
    instance.publish_iceberg("t")
    table.ingest(rows(2))
    before = {*tmp_path.rglob("*.avro"), *tmp_path.rglob("*.json")}
    ports = open_instance(str(tmp_path / "instance"), read_only=is_instance)
    with serving(ports, read_only=not is_instance) as server:
        source = {"uri": f"{server.url}/iceberg", "table": "sleeper.t"}
        assert readers.read("pyiceberg", **source).num_rows == 1
        answer = server.get("/iceberg/v1/namespaces/sleeper/tables/never")
        assert answer.status_code == 404
        assert "expected `sleeper iceberg publish` first" in answer.json()["error"]["message"]
    ports.close()
    assert {*tmp_path.rglob("*.avro"), *tmp_path.rglob("*.json")} == before
    assert not (tmp_path / "missing").exists()


def test_a_load_without_a_new_version_writes_nothing(
    instance: sleeper.Instance, server: Serving
) -> None:
    create(instance, "t").ingest(rows(1))
    path = "namespaces/sleeper/tables/t"
    first = get(server, path)
    started = time.monotonic()
    assert get(server, path)["metadata-location"] == first["metadata-location"]
    assert time.monotonic() - started < 5
