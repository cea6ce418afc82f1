"""Operations of stashes: started here or by workers, cancelled, recovered, scheduled, pruned."""

from collections.abc import Sequence
from contextlib import ExitStack

from simulation.workload.client import Client
from simulation.workload.registry import has_table, operation
from sleeper.stash.control import recover_stash
from sleeper.stash.finish import cancel_stash
from sleeper.stash.layout import StashFormat
from sleeper.stash.prune import prune_stashes
from sleeper.stash.reader import Stash
from sleeper.stash.record import StashRecord, StashRequest
from sleeper.stash.record_index import StashRecords
from sleeper.stash.requests import remove_schedule, request_stash, withdraw_request
from sleeper.stash.run import make_locked_stash, make_stash
from sleeper.stash.schedules import schedule_stash
from sleeper.stash.start import start_stash
from sleeper.stash.status import list_statuses

_DESTINATIONS_MAX = 2
_SCHEDULES = ("1h", "rate(3 hours)", "cron(0 6 * * ? *)")
_AGES_MS = (0, 60_000, 3_600_000)
_REQUESTERS = ("ann", "bob")


def _choose_destination(client: Client) -> str:
    """Returns a destination, perhaps a new one."""
    destinations = client.journal.destinations
    if len(destinations) < _DESTINATIONS_MAX:
        destinations.append(client.environment.destination(f"stashes-{len(destinations) + 1}"))
    return client.random.choice(destinations)


def _choose_tables(client: Client) -> Sequence[str]:
    """Returns no names, which means all tables, or those of a few."""
    tables = client.catalogue.active()
    if client.random.random() < 0.5:
        return ()
    return [
        each.name for each in client.random.sample(tables, client.random.randint(1, len(tables)))
    ]


def _choose_excluded(client: Client) -> str:
    """Returns the name of a table, or a pattern that it and perhaps others match."""
    name = client.random.choice(client.catalogue.active()).name
    return client.random.choice((name, f"{name[:-1]}[{name[-1]}]", f"*{name[-1]}"))


def _random_request(client: Client, is_submitted: bool) -> StashRequest:
    random = client.random
    tables = tuple(_choose_tables(client))
    has_excluded = not tables and random.random() < 0.5
    return StashRequest(
        _choose_destination(client),
        tables,
        exclude=(_choose_excluded(client),) if has_excluded else (),
        atomic=random.random() < 0.5,
        piece_bytes=random.choice((None, 1, 2_000)),
        format=random.choice(list(StashFormat)),
        submitted=is_submitted,
    )


@operation(3)
def run_stash(client: Client) -> None:
    """Makes a stash in this process."""
    with ExitStack() as locked:
        record = start_stash(client.instance, _random_request(client, False), locked=locked)
        make_locked_stash(client.instance, record)


@operation(3)
def submit_stash(client: Client) -> None:
    """Lets workers make a stash."""
    start_stash(client.instance, _random_request(client, True))


def _has_destination(client: Client) -> bool:
    return bool(client.journal.destinations)


def _choose_running(client: Client) -> StashRecord | None:
    running = StashRecords(client.instance.storage.root).running()
    return client.random.choice(running) if running else None


@operation(1, _has_destination)
def cancel_running_stash(client: Client) -> None:
    """Cancels a stash that has not ended."""
    record = _choose_running(client)
    if record is not None:
        cancel_stash(client.instance, record)


@operation(3, _has_destination)
def recover_running_stash(client: Client) -> None:
    """Continues a stash here, or lets workers continue it."""
    record = _choose_running(client)
    if record is None:
        return
    if client.random.random() < 0.5:
        make_stash(client.instance, record)
    else:
        recover_stash(client.instance, record)


@operation(1, has_table)
def schedule_stashes(client: Client) -> None:
    """Sets the schedule of a destination."""
    random = client.random
    schedule_stash(
        client.instance,
        _choose_destination(client),
        random.choice(_SCHEDULES),
        tuple(_choose_tables(client)),
        atomic=random.random() < 0.5,
        stash_format=random.choice(list(StashFormat)),
        only_if_requested=random.random() < 0.5,
        keep=random.choice((None, "1m", "1h")),
    )


@operation(2, _has_destination)
def request_scheduled_stash(client: Client) -> None:
    """Requests the next stash of a schedule, or takes the request back."""
    by = client.random.choice(_REQUESTERS)
    change = request_stash if client.random.random() < 0.8 else withdraw_request
    change(client.instance, client.random.choice(client.journal.destinations), by)


@operation(1, _has_destination)
def remove_stash_schedule(client: Client) -> None:
    """Removes the schedule of a destination."""
    remove_schedule(client.instance, client.random.choice(client.journal.destinations))


@operation(1, _has_destination)
def prune_old_stashes(client: Client) -> None:
    """Deletes the old stashes of a destination."""
    destination = client.random.choice(client.journal.destinations)
    prune_stashes(client.instance, destination, client.random.choice(_AGES_MS))


@operation(1, _has_destination)
def read_stash(client: Client) -> None:
    """Lists the stashes, and reads a table of the latest one."""
    list_statuses(client.instance, None)
    stash = Stash.open(client.random.choice(client.journal.destinations))
    stash.lock()
    names = stash.tables()
    if names:
        with stash.scan(client.random.choice(names)) as rows:
            list(rows)
