"""Extractors: which keys and values a store gets of its input's data."""

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import sleeper
from sleeper.adjunct import AdjunctStore
from sleeper.adjunct.extraction import Envelope, ExtractorSource, open_extract
from sleeper.errors import DataError, InvalidRequestError, UserCodeError
from tests.wheels import make_wheel

SCHEMA = {
    "rowKeyFields": [{"name": "id", "type": "LongType"}],
    "valueFields": [{"name": "name", "type": "StringType"}, {"name": "age", "type": "LongType"}],
}
CODE = '''
class Names:
    """A factory: `field` of its configuration is the value."""

    def get_extractor(self, config):
        return Extractor(config.get("field", "name"))


class Extractor:
    def __init__(self, field):
        self.field = field

    def get_key(self, envelope):
        return f"id-{envelope.key}"

    def get_value(self, envelope):
        return envelope.value[self.field]


def broken():
    raise ValueError("no")
'''


class Adults:
    """Keeps the names of adults, by the text of their key."""

    def get_key(self, envelope: Envelope) -> Any:
        return None if envelope.key == 99 else str(envelope.key)

    def get_value(self, envelope: Envelope) -> Any:
        value = envelope.value
        return {"name": value["name"].upper()} if value["age"] >= 18 else None


class AdultsFactory:
    def get_extractor(self, config: Mapping[str, str]) -> Adults:
        assert config == {"a": "b"}
        return Adults()


@pytest.fixture
def people(instance: sleeper.Instance) -> sleeper.Table:
    table = instance.create_table("people", SCHEMA, {"sleeper.table.rows": "latest"})
    add(table, {1: ("Ann", 30), 2: ("Bob", 10), 99: ("Cid", 50)})
    return table


def add(table: sleeper.Table, rows: dict[int, tuple[str, int]]) -> None:
    names, ages = [name for name, _ in rows.values()], [age for _, age in rows.values()]
    table.ingest(pa.table({"id": list(rows), "name": names, "age": ages}))


@pytest.fixture
def where(instance: sleeper.Instance, people: sleeper.Table, tmp_path: Path) -> dict[str, Any]:
    return {
        "name": "adults",
        "input": "table:people",
        "path": tmp_path / "stores",
        "instance": instance,
        "refresh_seconds": None,
    }


@pytest.mark.parametrize("extractor", [Adults, Adults(), AdultsFactory, AdultsFactory()])
@pytest.mark.parametrize("kind", ["rocksdb", "memory"])
def test_a_store_has_what_its_extractor_makes(
    where: dict[str, Any], people: sleeper.Table, extractor: object, kind: str
) -> None:
    config = {"a": "b"}
    with AdjunctStore.open(
        **where, extractor=extractor, extractor_config=config, type=kind
    ) as store:
        assert dict(store.all()) == {"1": {"name": "ANN"}}
        add(people, {2: ("Bob", 20), 3: ("Dan", 40)})
        store.refresh()
        assert dict(store.all()) == {
            "1": {"name": "ANN"},
            "2": {"name": "BOB"},
            "3": {"name": "DAN"},
        }
        people.delete(keys=[[1]])
        people.delete(ranges=[(3, None)])
        add(people, {2: ("Bob", 5)})
        store.refresh()
        assert dict(store.all()) == {}


def test_a_store_without_data_gets_its_keys_from_the_first_row(
    where: dict[str, Any], people: sleeper.Table
) -> None:
    people.delete(ranges=[(None, None)])
    with AdjunctStore.open(**where, extractor=Adults()) as store:
        assert store.get("1") is None
        add(people, {1: ("Ann", 30)})
        store.refresh()
        assert store.get("1") == {"name": "ANN"}


def test_another_extractor_makes_the_store_again(
    where: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    with AdjunctStore.open(**where) as store:
        assert store.get(1) == {"name": "Ann", "age": 30}
    with AdjunctStore.open(**where, extractor=Adults()) as store:
        assert store.get("1") == {"name": "ANN"}
    name = f"{Adults.__module__}:Adults"
    assert f"created again: its extractor was None (expected {name})" in caplog.text


def test_an_error_stops_the_store_at_the_transaction(
    where: dict[str, Any], people: sleeper.Table
) -> None:
    class Fails(Adults):
        fails = False

        def get_value(self, envelope: Envelope) -> Any:
            if self.fails and envelope.key == 4:
                raise KeyError("age")
            return super().get_value(envelope)

    extractor = Fails()
    with AdjunctStore.open(**where, extractor=extractor) as store:
        extractor.fails = True
        add(people, {3: ("Dan", 40)})
        add(people, {4: ("Eve", 40)})
        add(people, {5: ("Fay", 40)})
        expected = (
            rf"store 'adults': extractor '.*Fails' failed for .*offset {people.version - 1}: "
        )
        for _ in range(2):
            with pytest.raises(UserCodeError, match=f"{expected}KeyError: 'age'"):
                store.refresh()
            assert sorted(dict(store.all())) == ["1", "3"]
        assert "KeyError" in (store.status().problem or "")
        extractor.fails = False
        store.refresh()
        assert sorted(dict(store.all())) == ["1", "3", "4", "5"]
        assert store.status().problem is None


def test_keys_of_another_type_stop_the_store(where: dict[str, Any], people: sleeper.Table) -> None:
    class Mixed(Adults):
        def get_key(self, envelope: Envelope) -> Any:
            return envelope.key if envelope.key == 7 else super().get_key(envelope)

    with AdjunctStore.open(**where, extractor=Mixed()) as store:
        add(people, {7: ("Gus", 40)})
        with pytest.raises(DataError, match=f"offset {people.version}: .*7"):
            store.refresh()
        assert dict(store.all()) == {"1": {"name": "ANN"}}


def test_a_wheel_registers_an_extractor(where: dict[str, Any], tmp_path: Path) -> None:
    where["instance"]._ports.code.registry.add(
        [make_wheel(tmp_path, "names", {"names": CODE}, extractors={"Names": "names:Names"})]
    )
    with AdjunctStore.open(**where, extractor="Names", extractor_config={"field": "age"}) as store:
        assert dict(store.all()) == {"id-1": 30, "id-2": 10, "id-99": 50}
    with pytest.raises(InvalidRequestError, match="Nothing"):
        AdjunctStore.open(**where, extractor="Nothing")


def test_a_process_may_import_its_extractor(
    where: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "own_names.py").write_text(CODE)
    monkeypatch.syspath_prepend(tmp_path)
    with AdjunctStore.open(**where, extractor="own_names:Names") as store:
        assert store.get("id-1") == "Ann"
    for name, problem in (
        ("own_names:nothing", "cannot be imported: AttributeError"),
        ("nothing_there:Names", "cannot be imported: ModuleNotFoundError"),
        ("own_names:broken", r"has no methods get_key\(envelope\) and get_value\(envelope\)"),
        ("own_names:Extractor", "cannot be constructed: TypeError"),
    ):
        with pytest.raises(UserCodeError, match=f"store 'adults': extractor '{name}' {problem}"):
            AdjunctStore.open(**where, extractor=name)


def test_names_from_elsewhere_import_nothing(instance: sleeper.Instance) -> None:
    with pytest.raises(InvalidRequestError, match="names a module"):
        open_extract("a", "os:system", ExtractorSource(), lambda: instance._ports)


@pytest.mark.parametrize("error", [SystemExit(1), KeyboardInterrupt()])
def test_an_extractor_that_exits_ends_no_process(error: BaseException) -> None:
    class Exits(Adults):
        def get_key(self, envelope: Envelope) -> Any:
            raise error

    extract = open_extract("s", "mine", ExtractorSource(Exits()), lambda: pytest.fail("opened"))
    assert extract is not None
    envelope = Envelope("t", "0", "0", "1", 1, {"name": "a", "age": 20})
    pattern = f"extractor 'mine' failed .*{type(error).__name__}"
    with ThreadPoolExecutor(1) as pool, pytest.raises(UserCodeError, match=pattern):
        pool.submit(extract, envelope).result()
