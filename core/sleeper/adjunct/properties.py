# ruff: noqa: E501 (one declaration a line reads as a table)
"""Declarations of the properties of adjunct stores."""

from sleeper.properties.instance import declare
from sleeper.properties.value_kind import STRING_LIST, optional, text, whole_number

_GROUP = "Adjunct stores"

# fmt: off
ADJUNCT_STORES = declare("adjunct.stores", text(16_384), "", _GROUP, "The stores that the service on AWS fills: NAME=INPUT, separated by white space, such as `accounts=table:accounts`.", redeploy=True)
ADJUNCT_TASKS = declare("adjunct.tasks", whole_number(0, 1_000), 1, _GROUP, "The number of tasks of the service on AWS. Each has all stores.", redeploy=True)
ADJUNCT_TASK_CPU = declare("adjunct.task.cpu", whole_number(256, 16_384), 1024, _GROUP, "CPU units of a task of the service, for both of its containers.", redeploy=True)
ADJUNCT_TASK_MEMORY_MB = declare("adjunct.task.memory.mb", whole_number(512, 122_880), 4096, _GROUP, "The memory of a task of the service, for both of its containers, in MiB.", redeploy=True)
ADJUNCT_DISK_GIB = declare("adjunct.task.disk.gib", whole_number(21, 200), 50, _GROUP, "The encrypted disk of a task of the service, in GiB. A store needs its size twice while a version is built.", redeploy=True)
ADJUNCT_READER_IMAGE = declare("adjunct.reader.image", optional(text(1_000)), None, _GROUP, "The image of a container beside the one that fills the stores, which reads them in the folder SLEEPER_ADJUNCT_PATH. Default: none.", redeploy=True)
ADJUNCT_SECRETS = declare("adjunct.secrets", STRING_LIST, (), _GROUP, "The names or ARNs of the secrets in Secrets Manager that inputs of stores may read on AWS.", redeploy=True)
ADJUNCT_ALARM_MINUTES = declare("adjunct.alarm.minutes", whole_number(0, 24 * 60), 30, _GROUP, "On AWS, the minutes without all data of its input after which a store raises an alarm. 0: no alarm.", redeploy=True)
# fmt: on
