"""The kinds of exporters, and exporters of wheels."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

from sleeper.errors import InvalidRequestError, UserCodeError
from sleeper.export_queue.definition import ExporterSettings, ExportQueue, ExportSource
from sleeper.export_queue.exporter import ExportBatch
from sleeper.export_queue.exporters import check_exporter, open_exporter
from sleeper.export_queue.rows import rows_schema
from sleeper.instance import Instance
from sleeper.local.instance import create_local_instance, open_local_instance
from sleeper.schema.model import Field, PrimitiveType
from tests.wheels import isolated_user_code, make_wheel

QUEUE = ExportQueue(
    "counts",
    ExportSource.INGEST,
    (Field("word", PrimitiveType.STRING),),
    (Field("count", PrimitiveType.LONG),),
    ExporterSettings("null:"),
)
CODE = """
class Recorder:
    def __init__(self, options):
        self.options, self.seen, self.closed = options, [], False

    def export(self, batch):
        self.seen += [(e.key, e.value, e.sequence) for e in batch]

    def close(self):
        self.closed = True

class Plain:
    def export(self, batch):
        pass

class Broken:
    def __init__(self):
        raise ValueError("no luck")

class NoExport:
    pass
"""


@pytest.fixture
def instance(tmp_path: Path) -> Iterator[Instance]:
    create_local_instance(tmp_path / "instance")
    with isolated_user_code():
        opened = open_local_instance(tmp_path / "instance")
        yield opened
        opened.close()


@pytest.fixture
def wheel(instance: Instance, tmp_path: Path) -> None:
    names = ("Recorder", "Plain", "Broken", "NoExport")
    path = make_wheel(
        tmp_path,
        modules={"my_code": CODE},
        exporters={name: f"my_code:{name}" for name in names},
    )
    instance.code.registry.add([path])


def with_exporter(text: str, password: str | None = None, **options: str) -> ExportQueue:
    return replace(QUEUE, exporter=ExporterSettings(text, password, options))


def test_an_unknown_kind_is_refused_with_the_nearest_one(instance: Instance) -> None:
    queue = with_exporter("webhok:http://localhost")
    with pytest.raises(
        InvalidRequestError,
        match=r"queue 'counts': unknown kind of exporter 'webhok'; did you mean webhook\?",
    ):
        check_exporter(instance, queue)


def test_the_null_exporter_has_no_settings(instance: Instance) -> None:
    check_exporter(instance, QUEUE)
    with pytest.raises(InvalidRequestError, match="expected null:"):
        check_exporter(instance, with_exporter("null:x"))
    open_exporter(instance, QUEUE).close()


@pytest.mark.usefixtures("wheel")
def test_a_class_of_a_wheel_gets_options_password_and_batches(
    instance: Instance, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MY_SECRET", "geheim")
    queue = with_exporter("python:Recorder", "env:MY_SECRET", place="here")
    check_exporter(instance, queue)
    exporter = open_exporter(instance, queue)
    rows = pa.RecordBatch.from_pylist(
        [
            {"sequence": 3, "__gone": False, "word": "a", "count": 1},
            {"sequence": 4, "__gone": True, "word": "a", "count": None},
        ],
        schema=rows_schema(queue),
    )
    exporter.export(ExportBatch(queue, 5, rows))
    exporter.close()
    user_object = vars(exporter)["_object"]
    assert user_object.options == {"place": "here", "password": "geheim"}
    assert user_object.seen == [("a", {"count": 1}, 3), ("a", None, 4)]
    assert user_object.closed


@pytest.mark.usefixtures("wheel")
def test_a_class_without_options_and_close_is_an_exporter(instance: Instance) -> None:
    open_exporter(instance, with_exporter("python:Plain")).close()


@pytest.mark.usefixtures("wheel")
@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("Broken", "cannot be constructed: ValueError: no luck"),
        ("NoExport", r"has no method export\(batch\)"),
    ],
)
def test_a_class_that_is_no_exporter_is_named(instance: Instance, name: str, reason: str) -> None:
    with pytest.raises(UserCodeError, match=f"'{name}' of export queue 'counts' {reason}"):
        open_exporter(instance, with_exporter(f"python:{name}"))


def test_a_name_that_no_wheel_registers_is_refused(instance: Instance) -> None:
    with pytest.raises(
        InvalidRequestError, match=r"no exporter 'Mine' is registered .*sleeper\.exporters"
    ):
        check_exporter(instance, with_exporter("python:Mine"))


@pytest.mark.usefixtures("wheel")
def test_a_password_is_no_option(instance: Instance) -> None:
    with pytest.raises(InvalidRequestError, match="expected a reference"):
        check_exporter(
            instance,
            replace(QUEUE, exporter=ExporterSettings("python:Plain", None, {"password": "x"})),
        )
