"""Passwords of databases: each is sent only to hosts for which its secret is listed."""

from sleeper.adapters.definition import DatabaseSource
from sleeper.adapters.properties import ADAPTER_SECRETS
from sleeper.databases.url import parse_database_url
from sleeper.errors import InvalidRequestError
from sleeper.instance import Instance
from sleeper.runs.secrets import SecretPlace, check_is_managed, parse_secret, read_secret


def read_password(instance: Instance, source: DatabaseSource) -> str | None:
    """Returns the password of the source, None without one.

    InvalidRequestError if it cannot be read, or may not be sent to a host of the URL.
    """
    if source.password is None:
        return None
    check_hosts(instance, source)
    return read_secret(instance, source.password)


def check_password_of_tasks(instance: Instance, source: DatabaseSource) -> None:
    """Raises InvalidRequestError if tasks on AWS could not read the password, or not send it."""
    if source.password is not None:
        check_is_managed(parse_secret(source.password), "tasks")
        check_hosts(instance, source)


def check_hosts(instance: Instance, source: DatabaseSource) -> None:
    """Raises InvalidRequestError if a secret of Secrets Manager is not bound to all hosts.

    Environments and files belong to the machine of the run. Local instances have no such secrets.
    """
    secret = parse_secret(source.password or "")
    if secret.place is not SecretPlace.SECRETS_MANAGER or instance.read_secret is None:
        return
    listed = instance.properties().get(ADAPTER_SECRETS)
    bound = [each for each in listed if each.name == secret.name]
    if not bound:
        raise InvalidRequestError(
            f"{secret} is not a secret that tasks may read (expected it in {ADAPTER_SECRETS.name} "
            "as NAME@HOST, and a new deployment)"
        )
    for host, port in parse_database_url(source.url).addresses:
        if not any(each.allows(host, port) for each in bound):
            raise InvalidRequestError(
                f"{secret} may not be sent to {host}:{port} (expected "
                f"{secret.name}@{host} in {ADAPTER_SECRETS.name}, and a new deployment)"
            )
