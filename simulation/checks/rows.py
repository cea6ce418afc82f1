"""The rule that a query at a version returns exactly the rows that the model has there."""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from random import Random

from simulation.checks.violation import require
from simulation.model.fold import TableModel
from simulation.model.values import batch_rows
from simulation.model.visible import Row
from sleeper.instance import Instance
from sleeper.query.request import Query, make_key_regions
from sleeper.query.service import open_query
from sleeper.query.sql.service import open_sql
from sleeper.query.sql.tables import AsOf

_ROWS = "a version has exactly its rows"
_KEYS_MAX = 4
Reader = Callable[[Instance, str, TableModel, int], Counter[Row]]
"""Reads all rows of a version of a table, by name."""


def choose_versions(model: TableModel, random: Random, count: int = 3) -> list[int]:
    """Returns readable versions: the oldest, the newest, and others, ascending."""
    versions = model.readable_versions()
    if not versions:
        return []
    chosen = {versions[0], versions[-1], *(random.choice(versions) for _ in range(count - 2))}
    return sorted(chosen)


def check_rows(
    instance: Instance, name: str, model: TableModel, versions: Iterable[int], read: Reader
) -> None:
    """Compares all rows of the versions."""
    for version in versions:
        _compare(model, version, model.rows(version), read(instance, name, model, version))


def check_lookups(
    instance: Instance, name: str, model: TableModel, version: int, random: Random
) -> None:
    """Compares the rows of a few keys, most of which exist, that are looked up together."""
    expected = model.rows(version)
    schema = model.schema(version)
    count = len(schema.row_keys)
    existing = sorted({row[:count] for row in expected}, key=repr)
    earlier = [c.rows[0].values[:count] for c in model.contents.values[-1] if c.rows]
    candidates = [*existing, *earlier]
    if not candidates:
        return
    keys = [random.choice(candidates) for _ in range(random.randint(1, _KEYS_MAX))]
    is_newest = version == model.number and not model.processing(version).filters
    # Lookups at the newest version are planned from what the process remembers of it.
    query = Query(make_key_regions(schema, keys), version=None if is_newest else version)
    selected = Counter({row: n for row, n in expected.items() if row[:count] in keys})
    _compare(model, version, selected, _run(instance, name, query), keys)


def read_by_query(instance: Instance, name: str, _model: TableModel, version: int) -> Counter[Row]:
    """Reads a version by a query of all rows."""
    return _run(instance, name, Query(version=version))


def read_by_sql(instance: Instance, name: str, model: TableModel, version: int) -> Counter[Row]:
    """Reads a version by a statement that names the columns."""
    columns = ", ".join(f'"{field.name}"' for field in model.schema(version).fields)
    statement = f'SELECT {columns} FROM "{name}"'
    with open_sql(instance, statement, as_of=AsOf(version)) as result:
        return Counter(row for batch in result for row in batch_rows(batch))


def _run(instance: Instance, name: str, query: Query) -> Counter[Row]:
    with open_query(instance, name, query) as result:
        return Counter(row for batch in result for row in batch_rows(batch))


def _compare(
    model: TableModel,
    version: int,
    expected: Counter[Row],
    actual: Counter[Row],
    keys: Sequence[Row] = (),
) -> None:
    require(
        actual == expected,
        _ROWS,
        f"version {version}",
        table=model.id,
        keys=keys,
        missing=list((expected - actual).items())[:5],
        unexpected=list((actual - expected).items())[:5],
    )
