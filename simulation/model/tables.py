"""Random tables: schemas, kinds, properties and split points, and rows for them.

The kind of a table is its choice of rows: all rows (*append*), the *latest* of each key, the latest
*by* a field, those of the last load (*snapshot*), or one *aggregated* row of each key. Thresholds
are small, so that a few dozen rows split, compact and collect a table.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from random import Random

from simulation.model.values import Value, random_value
from sleeper.schema.model import (
    DecimalType,
    Field,
    FieldType,
    ListType,
    MapType,
    PrimitiveType,
    Schema,
    schema_to_json,
)

INT, LONG, STRING = PrimitiveType.INT, PrimitiveType.LONG, PrimitiveType.STRING
_KEY_TYPES: Sequence[FieldType] = (
    *(INT, INT, LONG, LONG, STRING, STRING, PrimitiveType.BYTE_ARRAY, PrimitiveType.DATE),
    *(PrimitiveType.TIMESTAMP, PrimitiveType.BOOLEAN, DecimalType(6, 2)),
)
_VALUE_TYPES: Sequence[FieldType] = (
    *_KEY_TYPES,
    *(PrimitiveType.FLOAT, PrimitiveType.DOUBLE, DecimalType(20, 5)),
    *(ListType(STRING), MapType(STRING, LONG)),
)
_BY_TYPES = (INT, LONG, STRING, PrimitiveType.TIMESTAMP, PrimitiveType.DATE)
_SUMMED_TYPES = (INT, LONG)
AGED_FIELD = "at"
"""The sort key of tables whose rows age off: milliseconds since 1970."""
_HOUR_MS = 3_600_000


class TableKind(StrEnum):
    """The choice of a table's rows."""

    APPEND = "append"
    LATEST = "latest"
    LATEST_BY = "latest by"
    SNAPSHOT = "snapshot"
    AGGREGATED = "aggregated"


@dataclass(frozen=True, slots=True)
class TableDefinition:
    """What a client passes to create a table. `age_ms` is the age at which its rows age off."""

    kind: TableKind
    schema: Schema
    settings: Mapping[str, str]
    split_points: Sequence[Value]
    age_ms: int | None = None

    @property
    def has_plain_keys(self) -> bool:
        """Whether the values of row keys are those of JSON."""
        return all(each.type in (INT, LONG, STRING) for each in self.schema.row_keys)

    @property
    def schema_text(self) -> str:
        return schema_to_json(self.schema)


def random_definition(random: Random, kind: TableKind | None = None) -> TableDefinition:
    """Returns the definition of a random table, by default of a random kind."""
    kind = kind or random.choice(list(TableKind))
    age_ms = random.choice((None, None, _HOUR_MS, 30 * _HOUR_MS))
    schema = _random_schema(random, kind, age_ms is not None)
    settings = {**_random_settings(random), **_kind_settings(random, kind, schema)}
    if age_ms is not None:
        settings["sleeper.table.filters"] = f"ageOff({AGED_FIELD},{age_ms})"
    first = schema.row_keys[0]
    count = 0 if first.type is PrimitiveType.BOOLEAN else random.choice((0, 0, 1, 3))
    points = {random_value(random, first.type) for _ in range(count)}
    return TableDefinition(kind, schema, settings, sorted(points - _smallest(first)), age_ms)


def _smallest(field: Field) -> set[Value]:
    """Returns values that are not split points, because nothing sorts before them."""
    return {"", b"", -(2**31) if field.type is INT else -(2**63)}


def _random_schema(random: Random, kind: TableKind, ages: bool) -> Schema:
    def fields(prefix: str, count: int, types: Sequence[FieldType]) -> tuple[Field, ...]:
        return tuple(Field(f"{prefix}{i}", random.choice(types)) for i in range(count))

    row_keys = fields("k", random.choice((1, 1, 1, 2, 2, 3)), _KEY_TYPES)
    sort_keys = fields("s", random.choice((0, 0, 1, 1, 2)), _KEY_TYPES)
    if ages:
        sort_keys = (*sort_keys[:1], Field(AGED_FIELD, LONG))
    values = fields("v", random.choice((1, 1, 2, 3)), _VALUE_TYPES)
    values = tuple(replace(each, nullable=random.random() < 0.5) for each in values)
    if kind is not TableKind.AGGREGATED:
        values = tuple(
            replace(each, type=PrimitiveType.JSON) if place and each.type is STRING else each
            for place, each in enumerate(values)
        )
    if kind is TableKind.LATEST_BY:
        values = (replace(values[0], type=random.choice(_BY_TYPES), nullable=False), *values[1:])
    return Schema(row_keys, sort_keys, values)


def _random_settings(random: Random) -> dict[str, str]:
    settings = {
        "gc.delay.minutes": random.choice(("0", "0", "1", "20")),
        "history.retention": random.choice(("", "", "", "", "", "90m")),
        "follower.retention": random.choice(("", "", "3h")),
        "parquet.rowgroup.rows.max": "1000",
        "bulk.import.min.leaf.partitions": str(random.choice((1, 4))),
        "bulk.import.leaf.bytes.min": "0",
        "ingest.batcher.job.min.size": "0",
    }
    plain = {f"sleeper.table.{name}": value for name, value in settings.items()}
    return {**plain, **random_upkeep_settings(random)}


def random_upkeep_settings(random: Random) -> dict[str, str]:
    """Returns thresholds and strategies, which can change while a table is used."""
    strategies = (
        "SizeRatioCompactionStrategy",
        "BasicCompactionStrategy",
        "CostCompactionStrategy",
        "CostCompactionStrategy",
    )
    settings = {
        "partition.splitting.threshold": str(random.choice((8, 20, 40, 80))),
        "ingest.file.writing.strategy": random.choice(
            ("one_file_per_leaf", "one_reference_per_leaf")
        ),
        # By size ratio, two files are compacted only if they have the same number of rows.
        "compaction.files.batch.size": str(random.choice((3, 3, 4, 6))),
        "compaction.strategy.class": random.choice(strategies),
        "compaction.strategy.sizeratio.ratio": "1",
        "compaction.strategy.cost.files.max": str(random.choice((2, 3, 5))),
        "compaction.leaf.rows.min": str(random.choice((0, 1, 3, 10, 10, 1000))),
        "compaction.leaf.bytes.min": str(1024**3),
        "ingest.batcher.job.min.files": str(random.randint(1, 3)),
        "ingest.batcher.job.max.files": str(random.randint(1, 3)),
    }
    return {f"sleeper.table.{name}": value for name, value in settings.items()}


def _kind_settings(random: Random, kind: TableKind, schema: Schema) -> dict[str, str]:
    match kind:
        case TableKind.APPEND:
            return {}
        case TableKind.LATEST:
            return {"sleeper.table.rows": "latest"}
        case TableKind.LATEST_BY:
            by = schema.values[0].name
            return {"sleeper.table.rows": "latest", "sleeper.table.latest.by": by}
        case TableKind.SNAPSHOT:
            return {
                "sleeper.table.type": "snapshot",
                "sleeper.table.snapshot.ttl": random.choice(("", "90m")),
                "sleeper.table.snapshot.min.versions": random.choice(("", "1", "3")),
            }
        case TableKind.AGGREGATED:
            return {"sleeper.table.aggregations": random_aggregations(random, schema)}


def random_aggregations(random: Random, schema: Schema) -> str:
    """Returns an aggregation of each value field, in the form of the property."""
    return ",".join(f"{_operation(random, f.type)}({f.name})" for f in schema.values)


def _operation(random: Random, kind: FieldType) -> str:
    """Returns an aggregation that fits the type. A list has none, so its table is not created."""
    if isinstance(kind, MapType):
        return random.choice(("map_sum", "map_min", "map_max"))
    return random.choice(("sum", "min", "max") if kind in _SUMMED_TYPES else ("min", "max"))


def random_row(random: Random, schema: Schema, now_ms: int) -> dict[str, Value]:
    """Returns a random row by field name. Times that age off are around now."""
    row = {each.name: random_value(random, each.type, each.nullable) for each in schema.fields}
    if AGED_FIELD in row:
        row[AGED_FIELD] = now_ms - random.randrange(4) * _HOUR_MS // 2
    return row


def random_key(random: Random, schema: Schema) -> tuple[Value, ...]:
    """Returns random values of the row key fields."""
    return tuple(random_value(random, each.type) for each in schema.row_keys)
