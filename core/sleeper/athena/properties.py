# ruff: noqa: E501 (one declaration a line reads as a table)
"""Declarations of the properties of queries of Athena."""

from sleeper.properties.declaration import Group
from sleeper.properties.deployed import DeployedBucket, declare_address
from sleeper.properties.deployment import MEMORY_MB, TIMEOUT_SECONDS
from sleeper.properties.instance import declare
from sleeper.properties.value_kind import FLAG, byte_count, whole_number

# fmt: off
ATHENA_HOLD_SECONDS = declare("athena.hold.seconds", whole_number(60, 30 * 86_400), 3600, Group.ATHENA, "The time for which a version stays readable after the last read of an Athena query began.")
ATHENA_SHOWS_RAW = declare("athena.raw.rows", FLAG, True, Group.ATHENA, "Whether Athena also has the unprocessed rows of the files, in the database `sleeper_raw`.")
ATHENA_SPLIT_BYTES = declare("athena.split.bytes", byte_count(1024**2), 512 * 1024**2, Group.ATHENA, "The approximate size of the data files that one Athena read covers.")
ATHENA_MEMORY_MB = declare("athena.handler.memory.mb", MEMORY_MB, 3008, Group.ATHENA, "Memory of the lambdas that Athena calls, in MiB. Must be more than `sleeper.query.memory.bytes`. New accounts have at most 3008 MiB.", redeploy=True)
ATHENA_TIMEOUT_SECONDS = declare("athena.handler.timeout.seconds", TIMEOUT_SECONDS, 900, Group.ATHENA, "The timeout of the lambdas that Athena calls.", redeploy=True)
ATHENA_SPILL_EXPIRY_DAYS = declare("athena.spill.bucket.ageoff.days", whole_number(1, 3650), 1, Group.ATHENA, "The retention of data that Athena queries spill, in days.", redeploy=True)
ATHENA_SPILL_BUCKET = declare_address("athena.spill.bucket", "The bucket that reads for Athena spill to.")
ATHENA_CATALOG = declare_address("athena.catalog", "The data catalog of Athena that the instance is.")
ATHENA_SPILL = DeployedBucket("athena-spill", "spill", ATHENA_SPILL_BUCKET)
# fmt: on
