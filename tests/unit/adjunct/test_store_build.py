"""Tests of versions that are written step by step."""

from dataclasses import replace
from pathlib import Path

import pytest

from sleeper.adjunct.contents.writers import DocumentWriter
from sleeper.adjunct.definition import EngineType, StoreDefinition
from sleeper.adjunct.extraction import Envelope
from sleeper.adjunct.versions.build import StoreBuild
from sleeper.adjunct.versions.store import Store
from sleeper.errors import UnavailableError

WRITER = DocumentWriter("words")
HERE = Envelope("words", "0", "0", "1", None, None)
KINDS = pytest.mark.parametrize("kind", list(EngineType))


def open_store(folder: Path, kind: EngineType = EngineType.ROCKSDB) -> Store:
    return Store(StoreDefinition("words", "kafka://b/t", kind), folder, lambda: 0)


def fill(store: Store, build: StoreBuild, **values: int) -> None:
    build.write(WRITER.put((key, value, HERE) for key, value in values.items()))
    build.finish(replace(store.new_state(), layout=WRITER.layout()))


@KINDS
def test_a_build_is_invisible_until_it_is_finished(tmp_path: Path, kind: EngineType) -> None:
    store = open_store(tmp_path, kind)
    fill(store, store.new_build(), a=1)
    build = store.new_build()
    build.write(WRITER.put([("a", 2, HERE)]))
    assert store.serving.get("a") == 1
    fill(store, build, b=3)
    assert list(store.serving.scan()) == [("a", 2), ("b", 3)]
    store.close()


@KINDS
def test_a_discarded_build_leaves_nothing(tmp_path: Path, kind: EngineType) -> None:
    store = open_store(tmp_path, kind)
    with store.new_build() as build:
        build.write(WRITER.put([("a", 1, HERE)]))
    build.discard()
    with pytest.raises(UnavailableError):
        _ = store.serving
    assert not list((tmp_path / "words").glob("v-*"))
    store.close()


@KINDS
def test_a_finished_build_is_not_discarded(tmp_path: Path, kind: EngineType) -> None:
    store = open_store(tmp_path, kind)
    with store.new_build() as build:
        fill(store, build, a=1)
    build.discard()
    assert store.serving.get("a") == 1
    store.close()
