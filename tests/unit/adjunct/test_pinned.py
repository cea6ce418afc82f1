"""Versions for jobs, which processes and threads of a machine find in one folder."""

import os
import signal
import subprocess
import sys
import textwrap
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

import sleeper
from sleeper.adjunct.definition import StoreDefinition
from sleeper.adjunct.enrichment.pinned_stores import PinnedStores
from sleeper.adjunct.feeds.opening import FeedContext, open_feed
from sleeper.adjunct.versions.folder import StoreFolder
from sleeper.adjunct.versions.store import Store
from sleeper.adjunct.versions.version import StoreVersion
from sleeper.clock import system_clock
from sleeper.errors import UnavailableError
from tests.unit.adjunct.enriched_tables import (
    ACCOUNTS,
    LOOKUP,
    VISITS,
    account_rows,
    declare,
    found,
)
from tests.unit.adjunct.test_adjunct_store import wait_until

DEFINITION = StoreDefinition("accounts", "table:accounts")


@pytest.fixture
def accounts(instance: sleeper.Instance) -> sleeper.Table:
    table = instance.create_table("accounts", ACCOUNTS, {"sleeper.table.rows": "latest"})
    table.ingest(account_rows({1: ("de", 10), 2: ("fr", 20)}))
    return table


@pytest.fixture
def context(instance: sleeper.Instance) -> FeedContext:
    return FeedContext(lambda: instance._ports)


@pytest.fixture
def stores() -> Iterator[PinnedStores]:
    opened = PinnedStores(system_clock)
    yield opened
    opened.close()


def countries(version: StoreVersion) -> dict[int, str]:
    return {key: value["country"] for key, value in version.scan()}


def test_a_pinned_version_does_not_change(
    accounts: sleeper.Table, stores: PinnedStores, context: FeedContext, tmp_path: Path
) -> None:
    before = stores.pin(DEFINITION, tmp_path, context)
    for number in range(30):
        accounts.ingest(account_rows({1: ("it", number), number + 10: ("es", number)}))
        after = stores.pin(DEFINITION, tmp_path, context)
    assert countries(before) == {1: "de", 2: "fr"}
    assert countries(after) == {1: "it", 2: "fr"} | dict.fromkeys(range(10, 40), "es")


def test_a_version_that_is_current_is_opened_once(
    accounts: sleeper.Table, stores: PinnedStores, context: FeedContext, tmp_path: Path
) -> None:
    first = stores.pin(DEFINITION, tmp_path, context)
    assert stores.pin(DEFINITION, tmp_path, context) is first


def test_another_process_reads_what_the_first_loaded(
    accounts: sleeper.Table,
    stores: PinnedStores,
    context: FeedContext,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    stores.pin(DEFINITION, tmp_path, context)

    def fail(*_args: object) -> None:
        raise AssertionError("the store was filled")

    monkeypatch.setattr(PinnedStores, "_fill", fail)
    other = PinnedStores(system_clock)
    assert countries(other.pin(DEFINITION, tmp_path, context)) == {1: "de", 2: "fr"}
    other.close()


def test_a_store_that_another_process_fills_is_waited_for(
    accounts: sleeper.Table, stores: PinnedStores, context: FeedContext, tmp_path: Path
) -> None:
    held = StoreFolder(tmp_path, "accounts").lock(DEFINITION)
    pinned: list[StoreVersion] = []
    thread = threading.Thread(
        target=lambda: pinned.append(stores.pin(DEFINITION, tmp_path, context))
    )
    thread.start()
    thread.join(0.3)
    assert not pinned
    held.release()
    thread.join(30)
    assert countries(pinned[0]) == {1: "de", 2: "fr"}


def test_a_wait_ends_with_an_error(
    accounts: sleeper.Table, context: FeedContext, tmp_path: Path
) -> None:
    held = StoreFolder(tmp_path, "accounts").lock(DEFINITION)
    with pytest.raises(UnavailableError, match="another process has loaded it for more than 0"):
        PinnedStores(system_clock, 0.2).pin(DEFINITION, tmp_path, context)
    held.release()


def test_what_another_process_commits_while_it_fills_is_found(
    accounts: sleeper.Table, stores: PinnedStores, context: FeedContext, tmp_path: Path
) -> None:
    """A process that always fills the store does not stop the jobs."""
    store = Store(DEFINITION, tmp_path, system_clock)
    feed = open_feed(store, context)
    feed.start()
    feed.update()
    assert countries(stores.pin(DEFINITION, tmp_path, context)) == {1: "de", 2: "fr"}
    accounts.ingest(account_rows({2: ("it", 1)}))
    pinned: list[StoreVersion] = []
    thread = threading.Thread(
        target=lambda: pinned.append(stores.pin(DEFINITION, tmp_path, context))
    )
    thread.start()
    thread.join(0.3)
    assert not pinned
    feed.update()
    thread.join(30)
    assert countries(pinned[0]) == {1: "de", 2: "it"}
    store.close()


def test_a_table_that_was_created_again_is_loaded_again(
    instance: sleeper.Instance,
    accounts: sleeper.Table,
    stores: PinnedStores,
    context: FeedContext,
    tmp_path: Path,
) -> None:
    stores.pin(DEFINITION, tmp_path, context)
    number = accounts.version
    instance.delete_table("accounts")
    again = instance.create_table("accounts", ACCOUNTS, {"sleeper.table.rows": "latest"})
    # Its newest transaction gets the same number.
    while again.version < number:
        again.ingest(account_rows({7: ("pt", 7)}))
    assert again.version == number
    content = countries(stores.pin(DEFINITION, tmp_path, context))
    assert content == {7: "pt"}


KILLED_IN_A_LOAD = """
    import sys, time
    import sleeper
    from sleeper.adjunct.versions.folder import StoreFolder

    def stop(*_args):
        print("loaded", flush=True)
        time.sleep(600)

    StoreFolder.seal = stop
    with sleeper.open_instance(sys.argv[1]) as instance:
        instance.table("visits").ingest(sys.argv[2])
"""


def test_a_process_killed_in_mid_load_leaves_nothing_to_repair(tmp_path: Path) -> None:
    where = tmp_path / "here"
    sleeper.create_instance(where)
    rows = tmp_path / "rows.csv"
    rows.write_text("at,account\n0,2\n")
    with sleeper.open_instance(where) as instance:
        instance.create_table("accounts", ACCOUNTS).ingest(account_rows({2: ("fr", 20)}))
        visits = instance.create_table("visits", VISITS, declare(LOOKUP))
        command = [sys.executable, "-c", textwrap.dedent(KILLED_IN_A_LOAD), str(where), str(rows)]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert process.stdout is not None
        assert process.stdout.readline() == "loaded\n"
        (folder,) = (where / "adjunct").iterdir()
        # A job of this process waits for the other one, and loads the store when that is dead.
        thread = threading.Thread(target=lambda: visits.ingest(rows))
        thread.start()
        thread.join(0.5)
        assert thread.is_alive()
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
        process.stdout.close()
        thread.join(60)
        assert found(visits) == [(0, 2, "fr", 20)]
        wait_until(lambda: len(list(folder.glob("v-*"))) == 1)
