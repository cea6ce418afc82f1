"""TLS of connections to databases: the rule of `runs.transport` as parameters of the drivers."""

import os
import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from sleeper.databases.url import DatabaseKind, DatabaseUrl, is_socket
from sleeper.runs.transport import insecure_connection, must_verify

_ROOT_CERTIFICATES = "sslrootcert"
# Java's own certificates of authorities. pgjdbc verifies the host's name with them too.
_JAVA_AUTHORITIES = "org.postgresql.ssl.DefaultJavaSSLFactory"
_ON = frozenset({"", "1", "true"})
_OFF = frozenset({"0", "false"})


@dataclass(frozen=True, slots=True)
class _Rule:
    """The parameters that make a driver verify, and the values of those that could prevent it."""

    parameters: Mapping[str, str]
    allowed: Mapping[str, frozenset[str]]
    expected: str


_POSTGRESQL = _Rule(
    {"sslmode": "verify-full"},
    {"sslmode": frozenset({"verify-full"}), "ssl": _ON},
    "sslmode=verify-full",
)
_MARIADB = _Rule(
    # The driver's versions before 3 know the first only.
    {"useSsl": "true", "sslMode": "verify-full"},
    {
        "usessl": _ON,
        "sslmode": frozenset({"verify-full", "verify_identity"}),
        "trustservercertificate": _OFF,
        "disablesslhostnameverification": _OFF,
    },
    "sslMode=verify-full",
)
_RULES = {
    DatabaseKind.POSTGRESQL: _POSTGRESQL,
    DatabaseKind.MARIADB: _MARIADB,
    DatabaseKind.MYSQL: _MARIADB,
}


def check_tls(url: DatabaseUrl, where: str) -> None:
    """Raises InvalidRequestError if a parameter of the URL prevents verification."""
    _verifying(url, where)


def libpq_tls(url: DatabaseUrl, where: str) -> dict[str, str]:
    """Returns the parameters of libpq. InvalidRequestError as of `check_tls`."""
    result = _verifying(url, where)
    if result and not _has_authorities(url):
        authorities = ssl.get_default_verify_paths().cafile
        result[_ROOT_CERTIFICATES] = authorities or "system"
    return result


def jdbc_tls(url: DatabaseUrl, where: str) -> dict[str, str]:
    """Returns the properties of JDBC drivers. InvalidRequestError as of `check_tls`."""
    result = _verifying(url, where)
    if result and url.kind is DatabaseKind.POSTGRESQL and not _has_authorities(url):
        result["sslfactory"] = _JAVA_AUTHORITIES
    return result


def _verifying(url: DatabaseUrl, where: str) -> dict[str, str]:
    hosts = url.hosts or _hosts_of_environment(url)
    if not must_verify(hosts, url.is_insecure):
        return {}
    rule = _RULES[url.kind]
    for name, value in url.driver_parameters:
        allowed = rule.allowed.get(name.lower())
        if allowed is not None and value.lower() not in allowed:
            raise insecure_connection(where, hosts, f"parameter {name}={value}", rule.expected)
    return dict(rule.parameters)


def _hosts_of_environment(url: DatabaseUrl) -> tuple[str, ...]:
    """Returns the hosts that libpq takes for a URL without a host."""
    if url.kind is not DatabaseKind.POSTGRESQL or url.has_socket:
        return ()
    named = (os.environ.get(name, "") for name in ("PGHOST", "PGHOSTADDR"))
    return tuple(each for each in named if each and not is_socket(each))


def _has_authorities(url: DatabaseUrl) -> bool:
    """Returns whether the user has named certificates of authorities, or has libpq's own file."""
    is_named = any(name == _ROOT_CERTIFICATES for name, _ in url.driver_parameters)
    in_home = Path("~/.postgresql/root.crt").expanduser()
    return is_named or "PGSSLROOTCERT" in os.environ or in_home.is_file()
