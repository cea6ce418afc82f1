"""The scheduled work of `sleeper run`."""

from pathlib import Path

from sleeper.files import new_data_path
from sleeper.instance import Instance
from sleeper.partitions.partition import ROOT_PARTITION_ID
from sleeper.statestore.fold import DAY_MS
from sleeper.workers.runner import run_instance
from tests.clock import FakeClock
from tests.system.bad_days import make_table


def test_a_run_collects_the_leftovers_of_dead_runs(instance: Instance, clock: FakeClock) -> None:
    make_table(instance)
    (ref,) = instance.tables.index.list()
    path = new_data_path(ref.id, ROOT_PARTITION_ID, clock() - 15 * DAY_MS)
    young = new_data_path(ref.id, ROOT_PARTITION_ID, clock() - DAY_MS)
    for item in (path, young):
        with instance.storage.root.sink(item) as sink:
            sink.write(b"left")
    run_instance(instance, until_idle=True, workers=1)
    assert not Path(instance.storage.root.url_of(path)).exists()
    assert Path(instance.storage.root.url_of(young)).exists()
