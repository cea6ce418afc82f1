"""Operations of published tables: publications here or by `sleeper run`, and their removal."""

from simulation.workload.client import Client
from simulation.workload.registry import has_table, operation
from sleeper.iceberg.automatic import publish_due
from sleeper.iceberg.compacting import compact_to_publish
from sleeper.iceberg.service import publish_table
from sleeper.iceberg.unpublish import unpublish_table

_LOCATIONS_MAX = 2
_ELSEWHERE_PROBABILITY = 0.2
_COMPACT_PROBABILITY = 0.2
_PROPERTY = "sleeper.table.iceberg.publish.seconds"


def _choose_location(client: Client) -> str | None:
    """Returns None for the folder of the table, or a location that tables compete for."""
    if client.random.random() > _ELSEWHERE_PROBABILITY:
        return None
    number = client.random.randint(1, _LOCATIONS_MAX)
    return client.environment.destination(f"published-{number}")


@operation(4, has_table)
def publish_iceberg(client: Client) -> None:
    """Publishes the newest version of a table, which may be compacted first."""
    table = client.instance.table(client.choose_table().name)
    location = _choose_location(client)
    if client.random.random() < _COMPACT_PROBABILITY:
        compact_to_publish(table)
    publish_table(table, location)


@operation(1, has_table)
def publish_after_commits(client: Client) -> None:
    """Lets `sleeper run` publish a table, or no longer."""
    seconds = client.random.choice(("0", "5", "60"))
    client.open(client.choose_table()).set_properties({_PROPERTY: seconds})


@operation(3, has_table, is_background=True)
def publish_due_tables(client: Client) -> None:
    """Publishes the tables whose time has come, as `sleeper run` does."""
    publish_due(client.instance, None)


@operation(1, has_table)
def unpublish_iceberg(client: Client) -> None:
    """Removes what was published of a table."""
    name, location = client.choose_table().name, _choose_location(client)
    unpublish_table(client.instance, name, location)
