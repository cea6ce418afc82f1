# ruff: noqa: E501 (one declaration a line reads as a table)
"""Declarations of the properties of published tables."""

from sleeper.properties.deployment import MEMORY_MB
from sleeper.properties.instance import declare
from sleeper.properties.table import inherit
from sleeper.properties.value_kind import optional, text, whole_number

_GROUP = "Iceberg"
_DAY_SECONDS = 24 * 3600
HOLD_OWNER = "iceberg"
"""The owner of holds of published versions."""

# fmt: off
ICEBERG_SECONDS = inherit("iceberg.publish.seconds", whole_number(0, _DAY_SECONDS), 0, _GROUP, "The time within which `sleeper run`, or IcebergStack on AWS, publishes a commit for readers of Apache Iceberg, at least 5. 0: only `sleeper iceberg publish` and readers of the catalog do.")
ICEBERG_LOCATION = inherit("iceberg.location", optional(text(1_000)), None, _GROUP, "The folder or s3://bucket/prefix of the table's metadata for readers of Apache Iceberg. Default: `iceberg` in the table's folder.")
ICEBERG_HOLD_SECONDS = inherit("iceberg.hold.seconds", whole_number(60, 30 * _DAY_SECONDS), 3600, _GROUP, "The time for which a version stays readable after it was published, at least two thirds of it.")
ICEBERG_MEMORY_MB = declare("iceberg.publish.memory.mb", MEMORY_MB, 2048, _GROUP, "Memory of the lambda that publishes tables for readers of Apache Iceberg, in MiB.", redeploy=True)
# fmt: on
