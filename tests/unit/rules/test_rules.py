"""The seven rules, each with the tests that fail when its guard is removed.

ARCHITECTURE.md, "Invariants", lists the rules.

Tests are named by file and test; those without a file are below. `tests/stateful` and
`tests/system/test_soak.py` hold all of the rules at once.

Rule 1, exactly once
- ids: unit/statestore/test_transactions.py `a_repeated_job_id_changes_nothing`,
  `a_repeated_job_id_with_other_files_is_refused`,
  `a_redelivered_request_with_its_own_files_is_already_done`
- their memory: same, `an_applied_id_is_remembered_for_thirty_days_of_entry_time`;
  `rule_1_a_message_older_than_the_memory_of_ids_is_rejected`
- two runs at once: unit/ingest/test_ingest.py `two_runs_of_one_job_at_once_commit_once`;
  unit/compaction/test_running.py `two_runs_of_one_job_commit_once`
- requests that are written together: unit/statestore/test_record_requests.py
  `a_known_id_refuses_the_files_of_all`; unit/ingest/test_row_writer.py
  `a_request_that_another_process_commits_meanwhile_is_left_out`;
  system/test_killed_writes.py
- deletes by message: handlers/test_deletes.py `a_redelivered_message_deletes_once`
- the message goes last: `rule_1_a_worker_deletes_its_message_only_after_the_commit`
- an answer that was lost: contracts/test_state_store.py
  `an_append_with_a_lost_response_is_recognised`

Rule 2, nothing committed is lost and nothing uncommitted seen
- versions: unit/statestore/test_transactions.py `a_version_shows_the_state_at_its_time`;
  unit/query/test_run.py `version_returns_its_rows`,
  `version_below_the_horizon_is_refused_with_the_oldest`
- files above a leaf: `rule_2_rows_of_a_file_above_its_leaves_are_seen_once`
- a partition's references only: unit/statestore/test_transactions.py
  `a_compaction_removes_only_its_partitions_references`
- all rows belong to a reference: same, `files_with_unreferenced_rows_are_refused`,
  `a_push_down_that_omits_rows_is_refused`
- rows that were lost on the way: unit/compaction/test_running.py
  `an_input_with_fewer_rows_than_the_state_says_loses_nothing`
- filters and aggregations: unit/processing/test_any_history.py; test_changes.py
  `a_compaction_ages_off_by_the_time_that_its_job_was_created`,
  `a_job_from_before_a_change_is_abandoned`, `an_old_version_has_its_own_time`
- iterators: unit/processing/test_any_history.py; unit/iterators/test_queries.py
  `an_iterators_violation_is_reported_with_its_name_and_key`,
  `an_iterator_receives_all_rows_of_a_key_in_any_query`
- hidden rows below all conditions: unit/query/test_hidden_rows.py; unit/api/test_hidden_rows.py;
  spark/test_hidden_rows.py

Rule 3, nothing live is overwritten
- fresh names: `rule_3_two_runs_in_the_same_millisecond_write_to_different_names`,
  `rule_3_an_object_that_is_there_is_not_overwritten`;
  unit/statestore/test_transactions.py `a_path_that_exists_is_refused`
- late commits: same, `a_commit_of_a_run_older_than_half_the_orphan_age_is_refused`,
  `the_run_start_in_a_files_name_counts_too`
- orphans: unit/garbage_collection/test_orphans.py `rule_3_...`;
  unit/statestore/test_transactions.py `a_run_older_than_the_bar_never_commits`
- the log's time: unit/statestore/test_log_time.py

Rule 4, nothing stays locked
- release: unit/compaction/test_creation.py `rule_4_jobs_whose_lease_ran_out_...`;
  unit/statestore/test_transactions.py `of_several_jobs_only_the_expired_are_released`
- jobs whose iterator failed: unit/iterators/test_compaction.py
  `a_failure_is_recorded_and_the_files_are_released_in_five_minutes`
- commits of released jobs: same, `a_commit_is_valid_exactly_while_its_job_holds_its_files`
- ids of released jobs: same, `the_id_of_a_released_job_is_never_used_again`
- dispatch: unit/compaction/test_creation.py `jobs_are_assigned_then_sent_then_recorded`,
  `rule_4_jobs_that_were_assigned_but_never_sent_are_sent_by_the_next_creation`
- renewal: unit/compaction/test_running.py `the_lease_is_renewed_while_a_run_goes_on`
- the lease outlasts the queue: `rule_4_a_lease_that_the_queue_outlasts_is_refused`

Rule 5, nothing referenced or held is deleted
- unit/garbage_collection/test_collection.py `rule_5_...`, `files_are_kept_for_the_tables_delay_...`
- claims below the horizon: unit/statestore/test_transactions.py
  `a_hold_or_follower_below_the_horizon_is_refused_naming_the_oldest_kept`
- trimming: contracts/test_state_store.py `trimming_stays_below_...`
- restored and shared files: unit/statestore/test_restore.py
  `a_restored_file_is_collected_only_after_it_is_removed_again`; test_pins.py
  `pinned_files_are_not_collected_until_the_last_pin_is_gone`;
  unit/admin/test_clone.py `a_deleted_owner_keeps_what_clones_need`
- purges: unit/purging/test_purging.py `a_hold_keeps_files_until_it_expires`,
  `rows_that_come_after_the_delete_are_kept`;
  system/test_killed_purges.py `killed_deletes_and_purges_lose_no_row_and_resurrect_none`
- queries: unit/query/test_run.py `held_version_is_not_collected`,
  `file_deleted_before_the_first_row_restarts_the_query`

Rule 6, memory is bounded
- groups of iterators: unit/datafiles/test_align_to_groups.py
  `no_more_is_held_than_a_group_and_a_batch`
- `rule_6_a_merge_never_opens_more_than_it_may`, `rule_6_a_merge_opens_what_its_memory_allows`;
  system/test_bad_days.py `a_leaf_of_a_thousand_files_is_compacted_in_512_mib`
- sorts: unit/datafiles/test_merge.py `a_sort_larger_than_its_memory_spills_and_stays_right`

Rule 7, bad input is refused with its reason
- system/test_bad_input.py; unit/datafiles/test_sources.py;
  unit/ingest/test_ingest.py `one_bad_row_refuses_the_whole_job`
- poison: system/test_bad_input.py `a_poison_message_ends_as_a_dead_letter_and_can_be_redriven`;
  contracts/test_queue.py `a_message_over_its_receives_is_a_dead_letter`
"""

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from sleeper.clock import system_clock
from sleeper.compaction.plan import compact_table
from sleeper.datafiles.merge import plan as merging
from sleeper.errors import InvalidRequestError, UnavailableError
from sleeper.ingest.service import ingest_paths, submit_ingest
from sleeper.instance import Instance
from sleeper.jobs.queue import QueueName
from sleeper.jobs.status import JobState
from sleeper.local.instance import create_local_instance, open_local_instance
from sleeper.query.request import Query, make_range_region
from sleeper.query.service import open_query, read_schema
from sleeper.splitting.service import split_table
from sleeper.workers.worker import Worker
from tests.clock import FakeClock
from tests.stateful.crashing import Crash, CrashPlan, make_crashing
from tests.system.bad_days import assert_nothing_stays, count_rows, make_table, run_all, write

DAY_MS = 24 * 3600 * 1000


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock(system_clock())


@pytest.fixture
def instance(tmp_path: Path, clock: FakeClock) -> Iterator[Instance]:
    create_local_instance(tmp_path / "instance", "test", {"sleeper.engine.threads": "1"})
    opened_instance = open_local_instance(tmp_path / "instance", clock)
    yield opened_instance
    opened_instance.close()


def test_rule_1_a_worker_deletes_its_message_only_after_the_commit(
    instance: Instance, tmp_path: Path, clock: FakeClock
) -> None:
    make_table(instance)
    path = write(tmp_path / "a.parquet", [("a", 1)])
    submit_ingest(instance, "rows", [str(path)], "j")
    plan = CrashPlan()
    mortal = make_crashing(instance, plan)
    # Dies at every call that comes after the message was received and before the commit.
    for call in range(2, 60):
        if count_rows(instance):
            break
        assert instance.jobs.queue(QueueName.INGEST).counts().unfinished == 1
        plan.left, plan.is_dead = call, False
        with pytest.raises(Crash):
            Worker(mortal, "task", threading.Event()).run_one()
        redeliver(instance, clock)
    else:
        raise AssertionError("the commit never came")
    run_all(instance)
    assert count_rows(instance) == {("a", 1): 1}
    assert_nothing_stays(instance)


def redeliver(instance: Instance, clock: FakeClock) -> None:
    """Lets received messages become dead letters, and redrives them."""
    clock.now_ms += 1_000_000
    instance.jobs.dead_letters(QueueName.INGEST).list()
    instance.jobs.dead_letters(QueueName.INGEST).redrive()


def test_rule_1_a_message_older_than_the_memory_of_ids_is_rejected(
    instance: Instance, tmp_path: Path, clock: FakeClock
) -> None:
    make_table(instance)
    path = write(tmp_path / "a.parquet", [("a", 1)])
    submit_ingest(instance, "rows", [str(path)], "j")
    ingest_paths(instance, "rows", [str(path)], "j")  # a worker that died before its delete
    for number in range(2):  # with the second entry the old id is forgotten
        clock.now_ms += 16 * DAY_MS
        other = write(tmp_path / f"{number}.parquet", [("b", number)])
        ingest_paths(instance, "rows", [str(other)])
    run_all(instance)
    assert count_rows(instance) == {("a", 1): 1, ("b", 0): 1, ("b", 1): 1}
    submit_ingest(instance, "rows", [str(path)], "late")
    clock.now_ms += 31 * DAY_MS
    run_all(instance)
    job = instance.jobs.tracker.job(instance.table("rows").ref.id, "late")
    assert job.state is JobState.REJECTED
    assert "31 days ago" in job.reasons[0]


@pytest.mark.parametrize("strategy", ["one_file_per_leaf", "one_reference_per_leaf"])
def test_rule_2_rows_of_a_file_above_its_leaves_are_seen_once(
    instance: Instance, tmp_path: Path, strategy: str
) -> None:
    make_table(
        instance,
        ("k03",),
        partition_splitting_threshold="12",
        ingest_file_writing_strategy=strategy,
    )
    rows = [(f"k{i:02d}", i) for i in range(40)]
    ingest_paths(instance, "rows", [str(write(tmp_path / "a.parquet", rows))])
    assert any(result.leaves > 1 for result in split_table(instance, "rows"))
    schema = read_schema(instance, "rows")
    for requested in (None, (make_range_region(schema, "k01", "k30"),)):
        with open_query(instance, "rows", Query(regions=requested)) as result:
            actual = [key for batch in result for key in batch.column("k").to_pylist()]
        expected = [k for k, _ in rows if requested is None or "k01" <= k < "k30"]
        assert actual == expected
    compact_table(instance, "rows", full=True)
    run_all(instance)
    assert count_rows(instance) == dict.fromkeys(rows, 1)


def test_rule_3_two_runs_in_the_same_millisecond_write_to_different_names(
    instance: Instance, tmp_path: Path
) -> None:
    make_table(instance)
    path = write(tmp_path / "a.parquet", [("a", 1)])
    results = [ingest_paths(instance, "rows", [str(path)], f"j{n}") for n in range(2)]
    assert [result.files for result in results] == [1, 1]
    with instance.table("rows").state.reading() as state:
        paths = [file.path for file in state.files.all()]
    starts = {Path(path).name.partition("-")[0] for path in paths}
    assert len(paths) == 2
    assert starts == {str(instance.clock())}


def test_rule_3_an_object_that_is_there_is_not_overwritten(instance: Instance) -> None:
    with instance.storage.root.sink("0a0b0c0d/data/file") as sink:
        sink.write(b"live")
    with (
        pytest.raises(UnavailableError, match="exists"),
        instance.storage.root.sink("0a0b0c0d/data/file") as sink,
    ):
        sink.write(b"other")
    assert instance.storage.root.read("0a0b0c0d/data/file") == b"live"


def test_rule_4_a_lease_that_the_queue_outlasts_is_refused(instance: Instance) -> None:
    with pytest.raises(InvalidRequestError, match=r"lease\.seconds.*longer than"):
        instance.change_properties({"sleeper.compaction.lease.seconds": "900"})


@pytest.mark.parametrize("files_max", [2, 5])
def test_rule_6_a_merge_never_opens_more_than_it_may(
    instance: Instance, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, files_max: int
) -> None:
    instance.change_properties({"sleeper.merge.files.max": str(files_max)})
    assert opened_at_once(instance, tmp_path, monkeypatch, 13) == files_max


def test_rule_6_a_merge_opens_what_its_memory_allows(
    instance: Instance, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    instance.change_properties({"sleeper.merge.memory.bytes": str(16 << 20)})
    assert 2 <= opened_at_once(instance, tmp_path, monkeypatch, 13) <= 8


def opened_at_once(
    instance: Instance, folder: Path, monkeypatch: pytest.MonkeyPatch, count: int
) -> int:
    """Compacts so many files; how many inputs one plan had at most."""
    make_table(instance)
    for number in range(count):
        path = write(folder / f"{number}.parquet", [(f"k{number:02d}", number)])
        ingest_paths(instance, "rows", [str(path)])
    previous = count_rows(instance)
    inputs: list[int] = []
    plan = merging.merge_frame

    def watch(request: Any, *more: Any) -> Any:
        inputs.append(len(request.inputs))
        return plan(request, *more)

    monkeypatch.setattr(merging, "merge_frame", watch)
    compact_table(instance, "rows", full=True)
    run_all(instance)
    assert count_rows(instance) == previous
    with instance.table("rows").state.reading() as state:
        assert state.files.totals().files == 1
    return max(inputs)


def test_rule_7_a_refused_job_is_tracked_and_its_message_is_gone(
    instance: Instance, tmp_path: Path
) -> None:
    make_table(instance)
    path = write(tmp_path / "a.parquet", [("a", 1), (None, 2)])
    submit_ingest(instance, "rows", [str(path)], "j")
    run_all(instance)
    job = instance.jobs.tracker.job(instance.table("rows").ref.id, "j")
    assert job.state is JobState.REJECTED
    assert "'k'" in job.reasons[0]
    assert not count_rows(instance)
    assert_nothing_stays(instance)
