"""The schema of gchq/sleeper's own performance tests."""

from sleeper.schema.model import Field, PrimitiveType, Schema

SCHEMA = Schema(
    (Field("key", PrimitiveType.STRING),),
    (Field("sort", PrimitiveType.LONG),),
    (Field("value", PrimitiveType.STRING),),
)
