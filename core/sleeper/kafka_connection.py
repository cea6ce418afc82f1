"""Connections to Kafka: addresses, options for TLS and passwords, clients."""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

from sleeper import DISTRIBUTION
from sleeper.errors import InvalidRequestError
from sleeper.runs.transport import (
    INSECURE,
    insecure_connection,
    must_verify,
    parse_host,
    read_insecure,
)

if TYPE_CHECKING:
    from confluent_kafka import KafkaError

Client = TypeVar("Client")

CONNECTION_OPTIONS = frozenset(
    {
        INSECURE,
        "client.id",
        "sasl.mechanism",
        "sasl.username",
        "security.protocol",
        "ssl.ca.location",
        "ssl.certificate.location",
        "ssl.key.location",
    }
)
TARGET = r"//[A-Za-z0-9._:\[\]-]+(,[A-Za-z0-9._:\[\]-]+)*/[A-Za-z0-9._-]{1,249}"
"""The form of brokers and a topic, as `//BROKER:PORT,BROKER:PORT/TOPIC`."""

_TLS_PROTOCOLS = ("SSL", "SASL_SSL")
_VERIFYING = {
    "enable.ssl.certificate.verification": True,
    "ssl.endpoint.identification.algorithm": "https",
}
_MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
_LOG_CRITICAL = 2


def check_connection(
    where: str, target: str, options: Mapping[str, str], has_password: bool, password_option: str
) -> None:
    """Raises InvalidRequestError, which begins with `where`, if the settings are invalid.

    `password_option` is how a password is given.
    """
    if "@" in target:
        raise InvalidRequestError(
            f"{where}: the brokers have a user or password, which would be stored "
            f"(expected option sasl.username, and {password_option} env:NAME, file:PATH or "
            "secret:NAME-OR-ARN)"
        )
    _choose_protocol(where, split_target(target)[0], options)
    if ("sasl.username" in options) != has_password:
        raise InvalidRequestError(
            f"{where}: only one of option sasl.username and a password is given "
            "(expected both or neither)"
        )
    mechanism = options.get("sasl.mechanism", _MECHANISMS[0])
    if mechanism not in _MECHANISMS:
        raise InvalidRequestError(
            f"{where}: option sasl.mechanism is {mechanism!r} "
            f"(expected one of {', '.join(_MECHANISMS)})"
        )


def make_client(
    where: str,
    make: "Callable[[dict[str, Any]], Client]",
    settings: Mapping[str, Any],
    password: str | None,
    on_error: "Callable[[KafkaError], None]",
) -> Client:
    """Returns a client, which connects later. InvalidRequestError without secrets."""
    from confluent_kafka import KafkaException

    protocol = _choose_protocol(where, settings["bootstrap.servers"], settings)
    settings = {
        **{name: value for name, value in settings.items() if name != INSECURE},
        "security.protocol": protocol,
        **_VERIFYING,
        "error_cb": on_error,
        "log_level": _LOG_CRITICAL,  # it would log each attempt to connect to standard error
    }
    if "sasl.username" in settings:
        settings.setdefault("sasl.mechanism", _MECHANISMS[0])
        settings["sasl.password"] = password or ""
    try:
        return make(settings)
    except KafkaException as error:
        problem = str(error.args[0].str())
    except (TypeError, ValueError) as error:
        problem = str(error)
    # Outside of the handlers, whose errors might show the settings.
    shown = problem.replace(password, "***") if password else problem
    raise InvalidRequestError(f"{where}: {shown}")


def _choose_protocol(where: str, brokers: str, options: Mapping[str, str]) -> str:
    """Returns the given protocol, by default that with TLS, and that of this machine without.

    InvalidRequestError if it has no TLS. The client verifies certificates and names of hosts.
    """
    secure, plain = ("SSL", "PLAINTEXT")
    if "sasl.username" in options:
        secure, plain = f"SASL_{secure}", f"SASL_{plain}"
    hosts = [parse_host(each) for each in brokers.split(",")]
    is_insecure = read_insecure(where, options)
    given = options.get("security.protocol")
    if not must_verify(hosts, is_insecure):
        return given or plain
    if given is not None and given.upper() not in _TLS_PROTOCOLS:
        setting = f"security.protocol={given[:40]}"
        raise insecure_connection(where, hosts, setting, f"security.protocol={secure}")
    return given or secure


def check_installed(where: str) -> None:
    """Raises InvalidRequestError if the client's library is not installed."""
    try:
        import confluent_kafka  # noqa: F401
    except ModuleNotFoundError as error:
        raise InvalidRequestError(
            f"{where} needs {error.name}: pip install '{DISTRIBUTION}[kafka]'"
        ) from error


def split_target(target: str) -> tuple[str, str]:
    """Returns the brokers and the topic of a target."""
    brokers, _, topic = target.removeprefix("//").rpartition("/")
    return brokers, topic
