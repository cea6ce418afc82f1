"""IAM statements for the states of tables: their logs, snapshots and holds."""

from collections.abc import Sequence

from sleeper.properties.deployed import HOLDS, TABLE_DATA, TRANSACTION_LOG, DeployedTable
from stacks.constructs.permissions import (
    DELETE_ITEMS,
    LOG_BODIES,
    STATE,
    WRITE_ITEMS,
    Permission,
    delete_objects,
    find_tables,
    read_objects,
    write_objects,
)
from stacks.deployment import Deployment


def read_state(deployment: Deployment) -> list[Permission]:
    """Allows finding tables, and reading logs and snapshots of states."""
    return [
        *find_tables(deployment),
        Permission(("s3:ListBucket",), [deployment.bucket_arn(TABLE_DATA)]),
        Permission(("dynamodb:GetItem", "dynamodb:Query"), [deployment.table_arn(TRANSACTION_LOG)]),
        read_objects(deployment, STATE, LOG_BODIES),
    ]


def hold(deployment: Deployment) -> list[Permission]:
    """Allows keeping versions of tables readable, without any change of their logs."""
    return [
        see_holds(deployment),
        Permission((*WRITE_ITEMS, DELETE_ITEMS), [deployment.table_arn(HOLDS)]),
    ]


def see_holds(deployment: Deployment) -> Permission:
    """Allows reading which versions are held."""
    return Permission(("dynamodb:Query",), [deployment.table_arn(HOLDS)])


def forget_holds(deployment: Deployment) -> list[Permission]:
    """Allows reading and deleting holds, such as expired ones."""
    return [
        see_holds(deployment),
        Permission((DELETE_ITEMS,), [deployment.table_arn(HOLDS)], condition=_only_key(HOLDS)),
    ]


def commit(deployment: Deployment) -> list[Permission]:
    """Allows appending to logs. Large bodies are in the data bucket."""
    return [
        Permission(WRITE_ITEMS, [deployment.table_arn(TRANSACTION_LOG)]),
        write_objects(deployment, LOG_BODIES),
    ]


def trim_logs(deployment: Deployment) -> list[Permission]:
    """Allows deleting log entries with their bodies, but not appending.

    A batch that puts an item, and an update of the head's number, name more attributes.
    """
    return [
        _change_log(deployment, "dynamodb:UpdateItem", "trimmed"),
        _change_log(deployment, DELETE_ITEMS),
        delete_objects(deployment, LOG_BODIES),
    ]


def advance_cursors(deployment: Deployment) -> Permission:
    """Allows advancing the cursors of followers, which are items of logs, but not appending."""
    return _change_log(deployment, "dynamodb:UpdateItem", "position")


def _change_log(deployment: Deployment, action: str, *attributes: str) -> Permission:
    """Allows an action on items of logs that names only their key and these attributes."""
    arn = deployment.table_arn(TRANSACTION_LOG)
    return Permission((action,), [arn], condition=_only_key(TRANSACTION_LOG, *attributes))


def _only_key(table: DeployedTable, *attributes: str) -> tuple[str, str, Sequence[str]]:
    """Returns the condition that a request names no other attributes of items than these."""
    names = [each for each in (table.key.hash, table.key.range, *attributes) if each]
    return ("ForAllValues:StringEquals", "dynamodb:Attributes", names)
