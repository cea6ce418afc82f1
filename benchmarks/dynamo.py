"""An instance whose logs and trackers are on a DynamoDB server of this machine, for benchmarks."""

import functools
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from sleeper.aws.dynamo import DynamoItems
from sleeper.aws.holds import DynamoHolds
from sleeper.aws.shared_appends import SharedAppends
from sleeper.aws.trackers import DynamoJobTracker
from sleeper.aws.transaction_log import DynamoTransactionLog
from sleeper.instance import Instance
from sleeper.local.instance import create_local_instance, open_local_instance
from sleeper.properties.deployed import HOLDS_TABLE, JOB_TRACKER_TABLE, TRANSACTION_LOG_TABLE
from sleeper.statestore.database import Database
from sleeper.statestore.snapshots import SnapshotStore
from sleeper.statestore.store import StateStore
from sleeper.statestore.turns import Turns
from sleeper.tables import TableId
from tests.servers.dynoxide import dynoxide

_TRACKER_DAYS = 30


@contextmanager
def dynamo_instance(folder: Path) -> Iterator[Instance]:
    """Yields an instance in a new folder, with index, objects and copies of tables' states."""
    shutil.rmtree(folder, ignore_errors=True)
    place, copies = folder / "instance", folder / "copies"
    copies.mkdir(parents=True)
    create_local_instance(place, "benchmark")
    local = open_local_instance(place)
    with dynoxide(folder) as server:
        tables = server.make_tables()
        log_table = tables.name(TRANSACTION_LOG_TABLE)

        appends = SharedAppends(DynamoItems(tables.client, log_table, "transaction log"))

        turns = Turns()

        @functools.cache
        def state(table_id: TableId) -> StateStore:
            objects = local.storage.root.store
            log = DynamoTransactionLog(tables.client, log_table, table_id, objects, appends)
            holds = DynamoHolds(tables.client, tables.name(HOLDS_TABLE), table_id)
            database = Database(copies / f"{table_id}.db", durable=False, turns=turns)
            return StateStore(database, log, holds, local.clock, SnapshotStore(objects, table_id))

        tracker = DynamoJobTracker(tables.client, tables.name(JOB_TRACKER_TABLE), _TRACKER_DAYS)
        yield replace(
            local,
            tables=replace(local.tables, state=state, announce_commits=appends.announced),
            jobs=replace(local.jobs, tracker=tracker),
        )
    local.close()
    shutil.rmtree(folder)
