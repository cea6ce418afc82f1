# ruff: noqa: E501 (one declaration a line reads as a table)
"""Declarations of the properties of adapters."""

from sleeper.properties.bound_secrets import BOUND_SECRETS
from sleeper.properties.declaration import Group, SetBy
from sleeper.properties.instance import declare
from sleeper.properties.value_kind import (
    STRING_LIST,
    whole_number,
)

_GROUP = "Adapters"

# fmt: off
ADAPTER_PERIOD_MINUTES = declare("adapter.start.period.minutes", whole_number(1, 60), 1, _GROUP, "The period in which due adapters are started, and tasks for their runs.", redeploy=True)
ADAPTER_TASKS_MAX = declare("adapter.max.concurrent.tasks", whole_number(0, 10_000), 10, _GROUP, "The maximum number of concurrent adapter tasks on AWS.")
ADAPTER_TASK_CPU = declare("adapter.task.cpu", whole_number(256, 16_384), 2048, _GROUP, "CPU units of an adapter task.", redeploy=True)
ADAPTER_TASK_MEMORY_MB = declare("adapter.task.memory.mb", whole_number(512, 122_880), 4096, _GROUP, "The memory of an adapter task, in MiB.", redeploy=True)
ADAPTER_SECRETS = declare("adapter.secrets", BOUND_SECRETS, (), _GROUP, "The secrets in Secrets Manager that adapters may read, each with a host to which it may be sent: its name or ARN, `@` and the host, perhaps `:` and a port, such as `shop/reader@db.example:5432`. A secret of several hosts is listed several times; `@*` is every host. Without a host, a secret may be sent nowhere.", redeploy=True)
ADAPTER_SUBNETS = declare("adapter.subnets", STRING_LIST, (), _GROUP, "The subnets that adapter tasks run in, from which databases can be reached. Default: those of all tasks.", redeploy=True)
ADAPTER_SECURITY_GROUPS = declare("adapter.security.groups", STRING_LIST, (), _GROUP, "More security groups of adapter tasks. Required with sleeper.adapter.subnets, whose tasks have only these.", redeploy=True)
ADAPTER_TASK_SUBNETS = declare("adapter.task.subnets", STRING_LIST, (), Group.DEPLOYED, "The subnets that adapter tasks run in.", set_by=SetBy.DEPLOYMENT, redeploy=True)
ADAPTER_TASK_SECURITY_GROUPS = declare("adapter.task.security.groups", STRING_LIST, (), Group.DEPLOYED, "The security groups of adapter tasks.", set_by=SetBy.DEPLOYMENT, redeploy=True)
# fmt: on
