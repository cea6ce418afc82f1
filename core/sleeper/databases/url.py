"""URLs of SQL databases: `postgresql://[user@]host[:port]/database[?parameter=value]`.

A host may be a parameter, as `host=/var/run/postgresql` for a Unix socket of PostgreSQL. The
parameter `insecure=true` is not the driver's: it allows a connection without verified TLS.
"""

from dataclasses import dataclass
from enum import Enum
from urllib.parse import SplitResult, parse_qsl, unquote, urlencode, urlsplit

from sleeper.errors import InvalidRequestError, did_you_mean
from sleeper.runs.transport import INSECURE, read_insecure

_EXPECTED = "postgresql://[USER@]HOST[:PORT]/DATABASE"


class DatabaseKind(Enum):
    """The kinds of databases; the value is the scheme of their URLs."""

    POSTGRESQL = "postgresql"
    MARIADB = "mariadb"
    MYSQL = "mysql"


_PORTS = {DatabaseKind.POSTGRESQL: 5432, DatabaseKind.MARIADB: 3306, DatabaseKind.MYSQL: 3306}
_SCHEMES = {
    "postgresql": DatabaseKind.POSTGRESQL,
    "postgres": DatabaseKind.POSTGRESQL,
    "mariadb": DatabaseKind.MARIADB,
    "mysql": DatabaseKind.MYSQL,
}
# Parts of the names of all parameters of libpq and of JDBC drivers that contain secrets, or name
# files with them, such as keyStorePassword and oauth_client_secret.
_SECRET_PARTS = ("password", "passwd", "pwd", "passfile", "secret", "token")
# Options of Spark, which takes them and a driver's parameters from the same place.
_SPARK_OPTIONS = {"connectionprovider", "customschema", "dbtable", "driver", "fetchsize", "hint"}
_SPARK_OPTIONS |= {"keytab", "lowerbound", "numpartitions", "partitioncolumn", "preparequery"}
_SPARK_OPTIONS |= {"principal", "query", "querytimeout", "refreshkrb5config", "upperbound", "url"}
_SPARK_OPTIONS |= {"sessioninitstatement"}
# They name another database than the one that is shown.
_OTHER_DATABASES = {"dbname", "service", "servicefile"}
_REFUSED = _SPARK_OPTIONS | _OTHER_DATABASES
# Parts of the names of parameters with which a driver loads a class, or reads and writes files.
_UNSAFE_PARTS = ("factory", "plugin", "callback", "hostnameverifier", "logger", "keylog", "infile")


@dataclass(frozen=True, slots=True)
class DatabaseUrl:
    """The parts of a URL. `host` is empty for the default of the client."""

    kind: DatabaseKind
    host: str
    port: int | None
    database: str
    parameters: tuple[tuple[str, str], ...] = ()

    @property
    def shown(self) -> str:
        """The URL without parameters, for people. A host in the parameters is shown."""
        host = dict(self.parameters).get("host", "") if not self.host else self.host
        port = "" if self.port is None else f":{self.port}"
        return f"{self.kind.value}://{host}{port}/{self.database}"

    @property
    def hosts(self) -> tuple[str, ...]:
        """All hosts that are named, without Unix sockets."""
        return tuple(each for each in self._named_hosts if not is_socket(each))

    @property
    def addresses(self) -> tuple[tuple[str, int], ...]:
        """All pairs of a host and a port to which a driver may connect, with the defaults."""
        named = [value for name, value in self.parameters if name == "port"]
        ports = [each for value in named for each in value.split(",")]
        if self.port is not None or not ports:
            ports.append(str(self.port or _PORTS[self.kind]))
        hosts = self._named_hosts or ("localhost",)
        return tuple((host, _to_port(port)) for host in hosts for port in ports)

    @property
    def has_socket(self) -> bool:
        """Whether a Unix socket is named."""
        return any(map(is_socket, self._named_hosts))

    @property
    def _named_hosts(self) -> tuple[str, ...]:
        names = [value for name, value in self.parameters if name in ("host", "hostaddr")]
        return tuple(each for name in (self.host, *names) for each in name.split(",") if each)

    @property
    def is_insecure(self) -> bool:
        """Whether the connection may be without TLS that verifies the server."""
        return read_insecure("the database URL", dict(self.parameters))

    @property
    def driver_parameters(self) -> tuple[tuple[str, str], ...]:
        """The parameters for the driver."""
        return tuple(each for each in self.parameters if each[0] != INSECURE)

    @property
    def text(self) -> str:
        """The whole URL."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        port = "" if self.port is None else f":{self.port}"
        query = f"?{urlencode(self.parameters)}" if self.parameters else ""
        return f"{self.kind.value}://{host}{port}/{self.database}{query}"


def _to_port(text: str) -> int:
    if not text.isdecimal():
        raise InvalidRequestError(f"the port {text[:20]!r} of the database URL is not a number")
    return int(text)


def is_socket(host: str) -> bool:
    """Returns whether a host of PostgreSQL is a Unix socket."""
    return host.startswith(("/", "@"))


def is_database_url(text: str) -> bool:
    """Whether the text begins with the scheme of a database."""
    scheme, colon, _ = text.removeprefix("jdbc:").partition("://")
    return bool(colon) and scheme.lower() in _SCHEMES


def split_user(text: str) -> tuple[str, str | None]:
    """Returns a user's URL in its stored form, without the user, and the user.

    InvalidRequestError if it contains a password.
    """
    parts = _split(text)
    user = unquote(parts.username) if parts.username else None
    result = _parse(parts)
    named = dict(result.parameters)
    if "user" in named:
        user = user or named["user"]
    parameters = tuple((name, value) for name, value in result.parameters if name != "user")
    plain = DatabaseUrl(result.kind, result.host, result.port, result.database, parameters)
    return plain.text, user


def parse_database_url(text: str) -> DatabaseUrl:
    """Returns the parts of a stored URL. InvalidRequestError without secrets if it is invalid."""
    parts = _split(text)
    if parts.username is not None:
        raise InvalidRequestError(
            "the database URL has a user (expected it as the member user of the source)"
        )
    return _parse(parts)


def _split(text: str) -> SplitResult:
    try:
        parts = urlsplit(text.removeprefix("jdbc:"))
        _ = parts.port
    except ValueError:
        # Python's error may show a part of a password with characters that are not encoded.
        raise InvalidRequestError(
            f"the host or port of the database URL is invalid (expected {_EXPECTED})"
        ) from None
    if parts.scheme not in _SCHEMES:
        near = did_you_mean(parts.scheme, _SCHEMES)
        raise InvalidRequestError(
            f"unknown kind of database: {parts.scheme!r} "
            f"(expected {', '.join(each.value for each in DatabaseKind)}){near}"
        )
    return parts


def _parse(parts: SplitResult) -> DatabaseUrl:
    try:
        parameters = tuple(parse_qsl(parts.query, keep_blank_values=True, strict_parsing=True))
    except ValueError:
        if parts.query:
            raise InvalidRequestError(
                "the database URL has invalid parameters (expected ?NAME=VALUE&NAME=VALUE)"
            ) from None
        parameters = ()
    secrets = [name for name, _ in parameters if _has_part(name, _SECRET_PARTS)]
    if parts.password is not None or secrets:
        where = f"as parameter {secrets[0]}" if secrets else "after its user"
        raise InvalidRequestError(
            f"the database URL has a password {where}, which would be stored (expected none: "
            "name the secret with --password env:NAME, file:PATH or secret:NAME-OR-ARN)"
        )
    for name, _ in parameters:
        if name.lower() in _REFUSED or _has_part(name, _UNSAFE_PARTS):
            raise InvalidRequestError(
                f"the database URL has the parameter {name!r}, which is not allowed (expected "
                "parameters of the connection such as sslmode)"
            )
    read_insecure("the database URL", dict(parameters))
    if parts.fragment:
        raise InvalidRequestError("the database URL has a fragment after '#' (expected none)")
    database = parts.path.removeprefix("/")
    if not database or "/" in database or "@" in database:
        problem = "has no database" if not database else "has more than a database in its path"
        raise InvalidRequestError(f"the database URL {problem} (expected {_EXPECTED})")
    return DatabaseUrl(
        _SCHEMES[parts.scheme], parts.hostname or "", parts.port, database, parameters
    )


def _has_part(name: str, parts: tuple[str, ...]) -> bool:
    return any(part in name.lower() for part in parts)
