"""JDBC drivers of databases, and connections of the driver program through them."""

import logging
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from py4j.java_gateway import is_instance_of
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from sleeper.databases.columns import ColumnKind, DatabaseColumn
from sleeper.databases.errors import database_error
from sleeper.databases.tls import jdbc_tls
from sleeper.databases.url import DatabaseKind, DatabaseUrl
from sleeper.errors import InvalidRequestError, SleeperError, UnavailableError
from sleeper.spark.session import raise_task_errors

DRIVERS_VARIABLE = "SLEEPER_JDBC_DRIVERS"
"""The environment variable with folders of drivers' jars, as in PATH."""

_FOLDERS = ("/opt/sleeper/drivers", "/usr/share/java")
_CONNECT_SECONDS = 15
_REGISTRY = "org.apache.spark.sql.execution.datasources.jdbc.DriverRegistry"


@dataclass(frozen=True, slots=True)
class JdbcDriver:
    """A driver: its class, the names of its jar, and its settings. `scheme` is that of its URLs.

    `units_per_second` gives the unit of its timeouts.
    """

    class_name: str
    jars: tuple[str, ...]
    scheme: str
    port: int
    package: str
    units_per_second: int
    properties: Mapping[str, str]


_POSTGRESQL = JdbcDriver(
    "org.postgresql.Driver",
    ("postgresql.jar", "postgresql-[0-9]*.jar"),
    "postgresql",
    5432,
    "libpostgresql-jdbc-java",
    1,
    {
        "ApplicationName": "sleeper",
        "connectTimeout": str(_CONNECT_SECONDS),
        "loginTimeout": str(_CONNECT_SECONDS),
        "tcpKeepAlive": "true",
    },
)
_MARIADB = JdbcDriver(
    "org.mariadb.jdbc.Driver",
    ("mariadb-java-client.jar", "mariadb-java-client-[0-9]*.jar"),
    # Spark quotes names as MySQL does only for this scheme, which the driver must permit.
    "mysql",
    3306,
    "libmariadb-java",
    1000,
    {
        "connectTimeout": str(_CONNECT_SECONDS * 1000),
        "permitMysqlScheme": "true",
        "tcpKeepAlive": "true",
        "tinyInt1isBit": "true",
        "yearIsDateType": "false",
    },
)
_DRIVERS = {
    DatabaseKind.POSTGRESQL: _POSTGRESQL,
    DatabaseKind.MARIADB: _MARIADB,
    DatabaseKind.MYSQL: _MARIADB,
}


def find_jar(kind: DatabaseKind) -> Path | None:
    """Returns the newest jar of the driver in the folders of drivers, None if there is none."""
    chosen = [each for each in os.environ.get(DRIVERS_VARIABLE, "").split(os.pathsep) if each]
    for folder in (*chosen, *_FOLDERS):
        for pattern in _DRIVERS[kind].jars:
            matches = sorted(Path(folder).glob(pattern))
            if matches:
                return matches[-1]
    return None


def jar_settings() -> dict[str, str]:
    """Returns the settings of a new session that can use the drivers whose jars are found.

    A session that loads a driver after its start loses the driver's errors.
    """
    kinds = (DatabaseKind.POSTGRESQL, DatabaseKind.MARIADB)
    jars = [jar.as_uri() for jar in map(find_jar, kinds) if jar is not None]
    return {"spark.jars": ",".join(jars)} if jars else {}


@dataclass(frozen=True, slots=True)
class JdbcDatabase:
    """A database as Spark and this process connect to it. `where` names it in errors."""

    session: SparkSession
    url: DatabaseUrl
    user: str | None
    password: str | None
    where: str
    timeout_seconds: int | None = None

    def __post_init__(self) -> None:
        # Its debug log has the arguments of all calls, the password among them.
        logging.getLogger("py4j").setLevel(logging.WARNING)

    @property
    def kind(self) -> DatabaseKind:
        return self.url.kind

    @property
    def class_name(self) -> str:
        """The driver's class."""
        return _DRIVERS[self.kind].class_name

    @property
    def jdbc_url(self) -> str:
        """The URL without parameters, user and password."""
        driver = _DRIVERS[self.kind]
        host = f"[{self.url.host}]" if ":" in self.url.host else self.url.host or "localhost"
        return f"jdbc:{driver.scheme}://{host}:{self.url.port or driver.port}/{self.url.database}"

    def properties(self) -> dict[str, str]:
        """Returns the properties of a connection, with the password."""
        given = dict(self.url.driver_parameters)
        if "host" in given:
            raise InvalidRequestError(
                f"{self.where}: Spark cannot connect to the socket {given['host']!r} (expected a "
                "host in the URL, or the engine adbc)"
            )
        driver = _DRIVERS[self.kind]
        properties = dict(driver.properties)
        if self.timeout_seconds is not None:
            # The database ends the query earlier, unless the network has lost the connection.
            seconds = self.timeout_seconds + _CONNECT_SECONDS
            properties["socketTimeout"] = str(seconds * driver.units_per_second)
        properties |= jdbc_tls(self.url, self.where) | given
        if self.user is not None:
            properties["user"] = self.user
        if self.password is not None:
            properties["password"] = self.password
        return properties

    def load_driver(self) -> None:
        """Makes the driver known to Spark. InvalidRequestError if its jar is missing."""
        driver = _DRIVERS[self.kind]
        if self._registers(driver):
            return
        jar = find_jar(self.kind)
        if jar is not None:
            # For a session that was started without the jar, which may belong to other code.
            self.session.sql(f"ADD JAR '{jar}'")
            if self._registers(driver):
                return
        raise InvalidRequestError(
            f"{self.where}: Spark has no JDBC driver {driver.class_name} (expected its jar in "
            f"{', '.join(_FOLDERS)} or a folder of {DRIVERS_VARIABLE}; Debian has it in the "
            f"package {driver.package})"
        )

    def _registers(self, driver: JdbcDriver) -> bool:
        registry = self._jvm
        for part in _REGISTRY.split("."):
            registry = getattr(registry, part)
        try:
            registry.register(driver.class_name)
        except Py4JJavaError as error:
            if "ClassNotFoundException" in str(error.java_exception.getClass().getName()):
                return False
            raise
        except PySparkException:
            return False
        return True

    @property
    def _jvm(self) -> Any:
        return self.session.sparkContext._jvm

    @contextmanager
    def connection(self) -> Iterator["JdbcConnection"]:
        """Opens a connection of this process, which is closed at the end."""
        properties = self._jvm.java.util.Properties()
        for name, value in self.properties().items():
            properties.setProperty(name, value)
        with self.errors():
            opened = self._jvm.java.sql.DriverManager.getConnection(self.jdbc_url, properties)
        try:
            yield JdbcConnection(self, opened)
        finally:
            with suppress(Py4JJavaError):  # the database may have ended it
                opened.close()

    @contextmanager
    def errors(self) -> Iterator[None]:
        """Converts errors of the database and of Spark's tasks, which then name the database."""
        try:
            with raise_task_errors():
                yield
        except UnavailableError as error:
            cause = error.__cause__
            sql_error = None if cause is None else self._sql_error(cause)
            raise sql_error or UnavailableError(f"{self.where}: {error}") from cause

    def _sql_error(self, error: BaseException) -> SleeperError | None:
        """Returns the error of the database among the causes of an error of Java."""
        gateway = self.session.sparkContext._gateway
        cause = getattr(error, "java_exception", getattr(error, "_origin", None))
        while cause is not None and not is_instance_of(gateway, cause, "java.sql.SQLException"):
            cause = cause.getCause()
        if cause is None:
            return None
        reasons = [cause.getMessage() or "no reason reported"]
        below = cause.getCause()
        if below is not None and below.getMessage() and below.getMessage() not in reasons[0]:
            reasons.append(below.getMessage())
        return database_error(self.where, cause.getSQLState(), ": ".join(reasons))


@dataclass(frozen=True, slots=True)
class JdbcConnection:
    """An open connection of this process."""

    database: JdbcDatabase
    connection: Any

    def is_open(self) -> bool:
        """Whether the database still answers."""
        return bool(self.connection.isValid(_CONNECT_SECONDS))

    def run(self, *statements: str) -> None:
        """Runs statements without results."""
        with self._statement() as statement:
            for text in statements:
                statement.execute(text)

    def query(self, text: str) -> list[tuple[str | None, ...]]:
        """Returns the few rows of a query as text."""
        with self._statement() as statement:
            result = statement.executeQuery(text)
            count = result.getMetaData().getColumnCount()
            rows = []
            while result.next():
                rows.append(tuple(result.getString(position + 1) for position in range(count)))
            return rows

    def columns(self, relation: str) -> list[DatabaseColumn]:
        """Returns the columns of a table or query. InvalidRequestError if it has parameters."""
        text = f"SELECT * FROM {relation} WHERE 1 = 0"
        with self.database.errors():
            # Spark prepares statements, and drivers then take a question mark for a parameter.
            statement = self.connection.prepareStatement(text)
            try:
                statement.setQueryTimeout(self.database.timeout_seconds or 0)
                if "?" in text and statement.getParameterMetaData().getParameterCount():
                    raise InvalidRequestError(
                        f"{self.database.where}: the query has a parameter '?' (expected none)"
                    )
                result = statement.executeQuery().getMetaData()
                positions = range(1, result.getColumnCount() + 1)
                types = self.database._jvm.java.sql.Types
                return [
                    _column(result, position, types, self.database.kind) for position in positions
                ]
            finally:
                statement.close()

    @contextmanager
    def _statement(self) -> Iterator[Any]:
        with self.database.errors():
            statement = self.connection.createStatement()
            statement.setQueryTimeout(self.database.timeout_seconds or 0)
            try:
                yield statement
            finally:
                statement.close()


_KINDS = {
    ColumnKind.INTEGER: ("TINYINT", "SMALLINT", "INTEGER", "BIGINT"),
    ColumnKind.FLOAT: ("REAL", "FLOAT", "DOUBLE"),
    ColumnKind.DECIMAL: ("NUMERIC", "DECIMAL"),
    ColumnKind.BOOLEAN: ("BIT", "BOOLEAN"),
    ColumnKind.BINARY: ("BINARY", "VARBINARY", "LONGVARBINARY", "BLOB"),
    ColumnKind.TEXT: ("CHAR", "VARCHAR", "LONGVARCHAR", "NCHAR", "NVARCHAR", "CLOB"),
    ColumnKind.TIMESTAMP: ("TIMESTAMP", "TIMESTAMP_WITH_TIMEZONE"),
    ColumnKind.DATE: ("DATE",),
    ColumnKind.ARRAY: ("ARRAY",),
}
# For arrays, PostgreSQL's driver reports only a name: "_" and the type of the elements.
_ELEMENTS = {
    "int2": ColumnKind.INTEGER,
    "int4": ColumnKind.INTEGER,
    "int8": ColumnKind.INTEGER,
    "float4": ColumnKind.FLOAT,
    "float8": ColumnKind.FLOAT,
    "bool": ColumnKind.BOOLEAN,
    "text": ColumnKind.TEXT,
    "varchar": ColumnKind.TEXT,
}
# Types of PostgreSQL that its driver reports as other types.
_UNLIKE = {"money", "bit"}


def _column(result: Any, position: int, types: Any, database: DatabaseKind) -> DatabaseColumn:
    name, type_name = str(result.getColumnLabel(position)), str(result.getColumnTypeName(position))
    code = result.getColumnType(position)
    names = {getattr(types, each): kind for kind, all_of in _KINDS.items() for each in all_of}
    kind = names.get(code, ColumnKind.OTHER)
    if database is DatabaseKind.POSTGRESQL and type_name in _UNLIKE:
        kind = ColumnKind.OTHER
    if kind is ColumnKind.INTEGER and not result.isSigned(position):
        kind = ColumnKind.DECIMAL  # its largest values are too large for Java
    scale = max(int(result.getScale(position)), 0) if kind is ColumnKind.DECIMAL else 0
    return DatabaseColumn(name, type_name, kind, scale, _ELEMENTS.get(type_name.removeprefix("_")))
