"""The database that a feature loads."""

from tests.servers.postgres import Postgres


def database_settings(server: Postgres) -> list[tuple[str, str]]:
    """Creates a database with a table of the server, and returns the variables that name it."""
    database = server.make_database()
    database.run(
        "CREATE TABLE orders (n bigint PRIMARY KEY, text varchar(20));"
        "INSERT INTO orders SELECT n, 'text ' || n FROM generate_series(0, 99) AS n"
    )
    return [("MATRIX_DATABASE", database.url), ("MATRIX_PASSWORD", database.password)]
