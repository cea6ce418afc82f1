"""Functions of JSON in SQL: one expression over documents in memory, on one core."""

from typing import Any

import pyarrow as pa
from datafusion import SessionConfig, SessionContext

from benchmarks.measuring import Task, Watch, rates, run_by_turns
from benchmarks.result import Aim, Result, check, figure
from benchmarks.settings import Settings
from sleeper.datafiles.arrow import JSON_MARK
from sleeper.query.sql.json_functions import register_json_functions

ROWS = 5_000_000
_SMALL = '{{"a":{number},"b":"x{number}"}}'
_WHOLE = (
    '{{"id": {number}, "name": "alice smith", "tags": ["x","y"], "n": {{"a": 1.10, "b": true}}}}'
)
_EXPRESSIONS = {
    "small, ->> a": (_SMALL, "json_as_text(doc, '$.a')"),
    "small, ->> b": (_SMALL, "json_as_text(doc, '$.b')"),
    "->> name": (_WHOLE, "json_as_text(doc, '$.name')"),
    "json_get_int id": (_WHOLE, "json_get_int(doc, '$.id')"),
    "-> n": (_WHOLE, "json_get(doc, '$.n')"),
    "->> n.a": (_WHOLE, "json_as_text(doc, '$.n.a')"),
    "@> name": (_WHOLE, 'json_contains(doc, \'{"name": "bob"}\')'),
}
_SIMPLE = ("small, ->> a", "small, ->> b")
_DISTINCT = 100_000


def measure(settings: Settings) -> Result:
    rows = settings.rows or ROWS
    tasks = {
        name: Task(__name__, "ours", {"form": form, "expression": expression, "rows": rows})
        for name, (form, expression) in _EXPRESSIONS.items()
    }
    runs = run_by_turns(tasks, settings.repeats)
    figures = [
        figure(name, rates(rows, results), "M rows/s", Aim(5) if name in _SIMPLE else None)
        for name, results in runs.items()
    ]
    work = (
        f"{rows:,} documents in memory, one expression over each, and the values counted."
        " Small documents have 21 bytes, the others 80. One thread."
    )
    return Result("json-functions", work, tuple(figures))


def ours(watch: Watch, form: str, expression: str, rows: int) -> dict[str, Any]:
    session = SessionContext(SessionConfig().with_target_partitions(1))
    register_json_functions(session, checks_all=False)
    documents = pa.array([form.format(number=number) for number in range(_DISTINCT)])
    field = pa.field("doc", pa.string_view(), metadata=JSON_MARK)
    table = pa.table([documents.cast(pa.string_view())], pa.schema([field]))
    count = rows // _DISTINCT
    session.from_arrow(pa.concat_tables([table] * count), "t")
    with watch:
        (batch,) = session.sql(f"SELECT count({expression}) AS n FROM t").collect()
    check(batch.column(0)[0].as_py() == count * _DISTINCT, f"{expression}: {batch.column(0)}")
    return {}
