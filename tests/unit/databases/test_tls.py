"""TLS of connections to databases: the parameters, and a server with a certificate of its own."""

from pathlib import Path

import pytest

from sleeper.databases.errors import database_error
from sleeper.databases.postgresql import DatabaseLogin, PostgresqlConnection
from sleeper.databases.tls import check_tls, jdbc_tls, libpq_tls
from sleeper.databases.url import parse_database_url
from sleeper.errors import InvalidRequestError
from tests.servers.postgres import TLS_NAME, Postgres


@pytest.fixture(autouse=True)
def no_files_of_the_user(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in ("PGHOST", "PGHOSTADDR", "PGSSLROOTCERT"):
        monkeypatch.delenv(name, raising=False)


LOCAL = [
    "postgresql://localhost/d",
    "postgresql://127.0.0.1:5433/d?sslmode=disable",
    "postgresql://[::1]/d",
    "postgresql:///d",
    "postgresql:///d?host=/var/run/postgresql&port=5433",
    "mariadb://localhost/d?useSsl=false",
]


@pytest.mark.parametrize("url", [*LOCAL, "postgresql://db/d?insecure=true&sslmode=require"])
def test_connections_of_this_machine_and_insecure_ones_keep_the_drivers_defaults(url: str) -> None:
    assert libpq_tls(parse_database_url(url), "here") == {}
    assert jdbc_tls(parse_database_url(url), "here") == {}


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://db.example/d",
        "postgresql://db.example/d?sslmode=verify-full&ssl=true",
        "postgresql://localhost,db.example/d",
        "postgresql://localhost/d?hostaddr=10.0.0.1",
        "postgresql:///d?host=10.0.0.1",
        "postgresql:///d?host=/tmp,db.example",
    ],
)
def test_other_hosts_of_postgresql_are_verified(url: str) -> None:
    libpq, jdbc = (read(parse_database_url(url), "here") for read in (libpq_tls, jdbc_tls))
    assert libpq["sslmode"] == jdbc["sslmode"] == "verify-full"
    assert libpq["sslrootcert"]
    assert jdbc["sslfactory"] == "org.postgresql.ssl.DefaultJavaSSLFactory"


def test_a_host_of_the_environment_is_verified(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PGHOST", "db.example")
    assert libpq_tls(parse_database_url("postgresql:///d"), "here")["sslmode"] == "verify-full"
    assert libpq_tls(parse_database_url("postgresql:///d?host=/tmp"), "here") == {}
    monkeypatch.setenv("PGHOST", "/var/run/postgresql")
    assert libpq_tls(parse_database_url("postgresql:///d"), "here") == {}


def test_authorities_of_the_user_are_kept(tmp_path: Path) -> None:
    named = parse_database_url("postgresql://db/d?sslrootcert=/etc/own.crt")
    unnamed = parse_database_url("postgresql://db/d")
    assert libpq_tls(named, "here") == jdbc_tls(named, "here") == {"sslmode": "verify-full"}
    (tmp_path / ".postgresql").mkdir()
    (tmp_path / ".postgresql" / "root.crt").touch()
    assert libpq_tls(unnamed, "here") == jdbc_tls(unnamed, "here") == {"sslmode": "verify-full"}


@pytest.mark.parametrize("kind", ["mariadb", "mysql"])
def test_other_hosts_of_mariadb_are_verified(kind: str) -> None:
    for more in ("", "?sslMode=VERIFY_IDENTITY&trustServerCertificate=false"):
        found = jdbc_tls(parse_database_url(f"{kind}://db.example/d{more}"), "here")
        assert found == {"useSsl": "true", "sslMode": "verify-full"}


@pytest.mark.parametrize(
    ("url", "setting"),
    [
        *((f"postgresql://db/d?sslmode={mode}", f"sslmode={mode}") for mode in ("prefer", "x")),
        *((f"postgresql://db/d?SSLmode={mode}", f"SSLmode={mode}") for mode in ("disable",)),
        ("postgresql://db/d?sslmode=verify-ca", "sslmode=verify-ca"),
        ("postgresql://db/d?ssl=false", "ssl=false"),
        ("postgresql://db/d?sslmode=require&insecure=false", "sslmode=require"),
        ("mariadb://db/d?useSSL=false", "useSSL=false"),
        ("mariadb://db/d?sslMode=trust", "sslMode=trust"),
        ("mysql://db/d?trustServerCertificate=true", "trustServerCertificate=true"),
        ("mysql://db/d?disableSslHostnameVerification=1", "disableSslHostnameVerification=1"),
    ],
)
def test_a_parameter_that_prevents_verification_is_refused(url: str, setting: str) -> None:
    with pytest.raises(InvalidRequestError, match=f"here: parameter {setting} connects to db wit"):
        check_tls(parse_database_url(url), "here")


def test_insecure_is_true_or_false() -> None:
    with pytest.raises(InvalidRequestError, match=r"insecure is 'yes' .expected true or false"):
        parse_database_url("postgresql://db/d?insecure=yes")


def connect(server: Postgres, host: str, parameters: str = "") -> list[str]:
    """Returns whether the connection has TLS. The server is on this machine, whatever the name."""
    url = f"postgresql://{host}:{server.port}/postgres?hostaddr=127.0.0.1{parameters}"
    login = DatabaseLogin(url, server.user, server.password, "a test")
    connection = PostgresqlConnection(login, lambda state, text: database_error("db", state, text))
    try:
        query = "SELECT ssl::text AS ssl FROM pg_stat_ssl WHERE pid = pg_backend_pid()"
        (batch,) = connection.rows(query)
        found: list[str] = batch.column(0).to_pylist()
        return found
    finally:
        connection.close()


def test_a_certificate_of_an_unknown_authority_is_refused(postgres_server: Postgres) -> None:
    with pytest.raises(InvalidRequestError, match=r"certificate verify failed.*sslrootcert"):
        connect(postgres_server, TLS_NAME)
    known = f"&sslrootcert={postgres_server.certificate}"
    assert connect(postgres_server, TLS_NAME, known) == ["true"]
    with pytest.raises(InvalidRequestError, match=r"does not match host name.*insecure=true"):
        connect(postgres_server, "other.test", known)
    assert connect(postgres_server, "other.test", "&insecure=true&sslmode=disable") == ["false"]
