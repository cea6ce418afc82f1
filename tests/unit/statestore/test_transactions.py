"""Each transaction by itself, and the guards of the rules of the design."""

import json
from dataclasses import replace

import pytest

from sleeper.compaction.push_down import push_down_references
from sleeper.errors import DataError, InvalidRequestError, NotFoundError, StateMovedOnError
from sleeper.export_queue.transactions import (
    ChangeExportQueue,
    CreateExportQueue,
    DeleteExportQueue,
    ExportRows,
    QueueExports,
)
from sleeper.files import KeyFile, new_data_path
from sleeper.partitions.partition import (
    Partition,
    PartitionId,
    split_region,
    tree_from_split_points,
)
from sleeper.partitions.region import Range, Region
from sleeper.processing.field_changes import (
    AddField,
    DropField,
    OrderFields,
    RenameField,
    WidenField,
)
from sleeper.processing.model import AggregationOp
from sleeper.schema.model import DecimalType, Field, PrimitiveType, schema_to_json
from sleeper.statestore.log import LogEntry
from sleeper.statestore.transactions.add_files import AddFiles, NewFile
from sleeper.statestore.transactions.change_schema import ChangeSchema
from sleeper.statestore.transactions.check_unchanged import CheckUnchanged
from sleeper.statestore.transactions.codec import KINDS, decode_entry, encode
from sleeper.statestore.transactions.collection import (
    BarRuns,
    CollectFiles,
    FilesCollected,
    RaiseHorizon,
)
from sleeper.statestore.transactions.compaction_jobs import (
    AssignFiles,
    CommitCompaction,
    JobAssignment,
    ReleaseJobs,
    RenewLeases,
    ShortenLeases,
)
from sleeper.statestore.transactions.delete_rows import DeleteRows
from sleeper.statestore.transactions.holds import (
    CreateFollower,
    CreateHold,
    DeleteFollower,
    ReleaseHold,
    RenewHold,
)
from sleeper.statestore.transactions.partition_split import (
    MarkUnsplittable,
    PushDownReferences,
    ReferenceMove,
    SplitPartition,
)
from sleeper.statestore.transactions.pins import PinFiles, UnpinFiles
from sleeper.statestore.transactions.record_requests import RecordRequests, WriteRequest
from sleeper.statestore.transactions.restore import ReinitialiseTable, RestoreVersion, UndoJob
from sleeper.statestore.transactions.snapshot_loads import (
    BeginLoad,
    ExpireSnapshots,
    PublishSnapshot,
)
from sleeper.statestore.transactions.table_definition import (
    AcceptTime,
    ChangeProcessing,
    InitialiseTable,
)
from sleeper.statestore.transactions.transaction import Status
from tests.clock import DAY_MS, START_MS
from tests.tables.state_table import ROOT, SCHEMA, StateTable, data_file

LEFT, RIGHT = PartitionId("left"), PartitionId("right")


def compaction(table, job_id, *inputs, output="out", partition=ROOT, keys=(0, 9)):
    file = data_file(output, keys) if output else None
    return CommitCompaction(job_id, partition, inputs, file, table.clock.now_ms)


def push(path, *references):
    return PushDownReferences((ReferenceMove(path, ROOT, references),))


# rule 1: exactly once


def test_a_repeated_job_id_changes_nothing(table):
    job = table.ingest_job("a")
    first, again = table.commit(job), table.commit(job)
    assert (first.status, again.status) == (Status.APPLIED, Status.ALREADY_DONE)
    assert again.number == first.number == 2
    assert table.leaf_paths("root") == ["a"]


def test_a_repeated_job_id_with_other_files_is_refused(table):
    table.commit(table.ingest_job("a", job_id="job"))
    outcome = table.commit(table.ingest_job("b", job_id="job"))
    assert outcome.refused
    assert "other content" in outcome.reason
    assert table.leaf_paths("root") == ["a"]


def test_a_redelivered_request_with_its_own_files_is_already_done(table):
    table.commit(replace(table.ingest_job("a", job_id="job"), request="inputs"))
    again = table.commit(replace(table.ingest_job("b", job_id="job"), request="inputs"))
    other = table.commit(replace(table.ingest_job("c", job_id="job"), request="other inputs"))
    assert (again.status, other.status) == (Status.ALREADY_DONE, Status.REFUSED)
    assert table.leaf_paths("root") == ["a"]


def test_an_applied_id_is_remembered_for_thirty_days_of_entry_time(table):
    table.commit(table.ingest_job("a", job_id="job"))
    table.clock.now_ms += 30 * DAY_MS
    table.ingest("b")
    with table.store.reading() as state:
        assert state.jobs.applied("job").number == 2
    table.clock.now_ms += 1
    table.ingest("c")
    with table.store.reading() as state:
        assert state.jobs.applied("job") is None


def test_duplicates_in_one_commit_apply_once(table):
    job = table.ingest_job("a")
    outcomes = table.store.commit(job, job)
    assert [o.status for o in outcomes] == [Status.APPLIED, Status.ALREADY_DONE]


# rule 2: nothing committed is lost, nothing uncommitted is seen


@pytest.mark.parametrize(
    ("new", "reason"),
    [
        (NewFile(data_file("a"), ()), "has no reference"),
        (NewFile(data_file("a"), ((ROOT, 9),)), "10 rows, its references 9"),
        (NewFile(data_file("a"), ((PartitionId("none"), 10),)), "unknown"),
        (NewFile(data_file("a"), ((ROOT, 5), (ROOT, 5))), "twice"),
        (NewFile(data_file("a", (9, 0)), ((ROOT, 10),)), "upside down"),
        (NewFile(replace(data_file("a"), smallest_key=("x",)), ((ROOT, 10),)), "expected int"),
    ],
)
def test_files_with_unreferenced_rows_are_refused(table, new, reason):
    outcome = table.commit(AddFiles("job", START_MS, (new,)))
    assert outcome.refused
    assert reason in outcome.reason


def test_a_file_with_keys_outside_of_its_partition_is_refused(table):
    table.split(ROOT, 5, LEFT, RIGHT)
    assert "outside" in table.ingest("a", partition=LEFT).reason


def test_references_of_one_file_that_overlap_are_refused(table):
    table.split(ROOT, 5, LEFT, RIGHT)
    new = NewFile(data_file("a"), ((ROOT, 5), (LEFT, 5)))
    assert "one inside it" in table.commit(AddFiles("job", START_MS, (new,))).reason


def test_a_shared_file_is_seen_from_each_of_its_leaves(table):
    table.split(ROOT, 5, LEFT, RIGHT)
    new = NewFile(data_file("a"), ((LEFT, 4), (RIGHT, 6)))
    table.commit(AddFiles("job", START_MS, (new,)))
    assert table.leaf_paths("left") == table.leaf_paths("right") == ["a"]


def test_an_ingest_into_a_partition_that_was_split_meanwhile_is_seen_from_its_leaves(table):
    job = table.ingest_job("a")
    table.split(ROOT, 5, LEFT, RIGHT)
    assert table.commit(job).number == 3
    assert table.leaf_paths("left") == table.leaf_paths("right") == ["a"]


def test_a_compaction_of_a_partition_that_was_split_meanwhile_is_applied(table):
    table.ingest("a")
    table.assign("job", "a")
    table.split(ROOT, 5, LEFT, RIGHT)
    assert table.commit(compaction(table, "job", "a")).status is Status.APPLIED
    assert table.leaf_paths("left") == ["out"]


def test_a_push_down_moves_the_reference_to_the_leaves_that_overlap_the_file(table):
    table.ingest("a")
    table.ingest("b", keys=(0, 4))
    table.split(ROOT, 5, LEFT, RIGHT)
    assert table.commit(push("a", (LEFT, 5), (RIGHT, 5))).number == 5
    assert table.commit(push("b", (LEFT, 10))).number == 6
    assert table.leaf_paths("left") == ["a", "b"]
    assert table.leaf_paths("right") == ["a"]
    with table.store.reading() as state:
        assert list(state.files.inner_references()) == []
        assert {(r.path, r.partition_id, r.rows) for r in state.files.references()} == {
            ("a", "left", 5),
            ("a", "right", 5),
            ("b", "left", 10),
        }


def test_a_shared_file_is_pushed_down_below_its_reference_only(table):
    table.split(ROOT, 5, LEFT, RIGHT)
    table.commit(AddFiles("job", START_MS, (NewFile(data_file("a"), ((LEFT, 4), (RIGHT, 6))),)))
    table.split(LEFT, 2, "ll", "lr")
    with table.store.reading() as state:
        ((file, reference),) = state.files.inner_references()
    assert (file.path, reference.partition_id) == ("a", "left")
    assert push_down_references(table.store) == 1
    assert [table.leaf_paths(leaf) for leaf in ("ll", "lr", "right")] == [["a"]] * 3


def test_a_push_down_that_omits_rows_is_refused(table):
    table.ingest("a")
    table.split(ROOT, 5, LEFT, RIGHT)
    outcome = table.commit(push("a", (LEFT, 10)))
    assert outcome.refused
    assert "leaves out" in outcome.reason


def test_a_push_down_to_a_partition_not_below_or_inside_another_target_is_refused(table):
    table.ingest("a")
    table.split(ROOT, 5, LEFT, RIGHT)
    table.split(LEFT, 2, "ll", "lr")
    for references in [((ROOT, 10),), ((LEFT, 5), (PartitionId("ll"), 2), (RIGHT, 5))]:
        assert "not below it" in table.commit(push("a", *references)).reason


def test_a_moot_push_down_is_skipped_and_an_assigned_reference_left_alone(table):
    table.ingest("a", "b")
    table.split(ROOT, 5, LEFT, RIGHT)
    table.assign("job", "a")
    references = ((LEFT, 5), (RIGHT, 5))
    both = PushDownReferences(tuple(ReferenceMove(p, ROOT, references) for p in ("a", "b")))
    assert table.commit(both).status is Status.APPLIED
    assert table.commit(replace(both, id="again")).status is Status.ALREADY_DONE
    with table.store.reading() as state:
        assert {(r.path, r.partition_id) for r in state.files.references()} == {
            ("a", "root"),
            ("b", "left"),
            ("b", "right"),
        }


def test_a_compaction_removes_only_its_partitions_references(table):
    table.ingest("a")
    table.split(ROOT, 5, LEFT, RIGHT)
    table.commit(push("a", (LEFT, 5), (RIGHT, 5)))
    table.assign("job", "a", partition=LEFT)
    table.commit(compaction(table, "job", "a", partition=LEFT, keys=(0, 4)))
    assert table.leaf_paths("left") == ["out"]
    assert table.leaf_paths("right") == ["a"]
    with table.store.reading() as state:
        assert state.collection.unreferenced(table.clock.now_ms, 10) == []


def test_a_version_shows_the_state_at_its_time(table):
    table.ingest("a")
    table.ingest("b")
    table.assign("job", "a", "b")
    table.commit(compaction(table, "job", "a", "b"))
    table.split(ROOT, 5, LEFT, RIGHT)
    assert [table.leaf_paths("root", v) for v in (1, 2, 3, 4, 5)] == [
        [],
        ["a"],
        ["a", "b"],
        ["a", "b"],
        ["out"],
    ]
    with table.store.reading(5) as state:
        assert [p.id for p in state.partitions.leaves()] == ["root"]
    with table.store.reading(6) as state:
        assert [p.id for p in state.partitions.leaves()] == ["left", "right"]
        assert not state.partitions.get(ROOT).is_leaf


def test_a_compactions_output_has_the_numbers_of_its_inputs(table):
    table.ingest("a")
    table.ingest("b")
    table.assign("job", "a", "b")
    table.commit(compaction(table, "job", "a", "b"))
    with table.store.reading() as state:
        out = state.files.get("out")
        assert (out.smallest_number, out.largest_number) == (2, 3)
        assert [(n, f.path) for n, f in state.files.ingested_after(0, 10)] == [(2, "a"), (3, "b")]


# rule 3: nothing live is overwritten


def test_a_commit_of_a_run_older_than_half_the_orphan_age_is_refused(table):
    job = table.ingest_job("a")
    table.clock.now_ms += 7 * DAY_MS
    assert table.commit(replace(job, id="in time")).status is Status.APPLIED
    late = replace(table.ingest_job("b"), run_start_ms=job.run_start_ms)
    table.clock.now_ms += 1
    assert "orphan age" in table.commit(late).reason


def test_the_run_start_in_a_files_name_counts_too(table):
    path = new_data_path("t", ROOT, START_MS - 8 * DAY_MS)
    assert "orphan age" in table.ingest(path).reason


def test_a_run_older_than_the_bar_never_commits(table):
    table.ingest("input")
    job = table.ingest_job("old")
    table.assign("job", "input")
    compact = compaction(table, "job", "input")
    table.clock.now_ms += 20 * DAY_MS
    bar_ms = table.clock.now_ms - 14 * DAY_MS
    assert table.commit(BarRuns(bar_ms)).status is Status.APPLIED
    assert table.commit(BarRuns(bar_ms)).status is Status.ALREADY_DONE
    assert table.commit(BarRuns(bar_ms - 1)).status is Status.ALREADY_DONE
    assert "barred" in table.commit(job).reason
    assert "barred" in table.commit(compact).reason
    names = new_data_path("t", ROOT, bar_ms - 1)
    assert "barred" in table.ingest(names).reason
    with table.another_store().reading() as state:
        assert state.run_bar_ms == bar_ms


def test_a_bar_that_is_not_older_than_the_orphan_age_is_refused(table):
    outcome = table.commit(BarRuns(START_MS - 14 * DAY_MS + 1))
    assert "orphan age" in outcome.reason


def test_a_path_that_exists_is_refused(table):
    table.ingest("a")
    assert "already exists" in table.ingest("a").reason
    table.assign("job", "a")
    assert "already exists" in table.commit(compaction(table, "job", "a", output="a")).reason


# rule 4: nothing stays locked


def test_a_file_is_assigned_to_one_job_at_a_time(table):
    table.ingest("a")
    assert table.assign("job1", "a").status is Status.APPLIED
    assert "assigned to another" in table.assign("job2", "a").reason


def test_one_invalid_assignment_refuses_all(table):
    table.ingest("a", "b")
    lease = START_MS + 1
    jobs = (
        JobAssignment("job1", ROOT, ("a",), lease),
        JobAssignment("job2", ROOT, ("gone",), lease),
    )
    assert table.commit(AssignFiles(jobs)).refused
    twice = (JobAssignment("job1", ROOT, ("a",), lease), JobAssignment("job2", ROOT, ("a",), lease))
    assert "file of another job" in table.commit(AssignFiles(twice)).reason
    with table.store.reading() as state:
        assert list(state.jobs.assigned()) == []


def test_a_commit_is_valid_exactly_while_its_job_holds_its_files(table):
    table.ingest("a", "b")
    assert "no longer holds" in table.commit(compaction(table, "job", "a")).reason
    table.assign("job", "a")
    assert "no longer holds" in table.commit(compaction(table, "job", "a", "b")).reason
    table.clock.now_ms += 5000  # the lease is over, and nobody has released it
    assert table.commit(compaction(table, "job", "a")).status is Status.APPLIED


def test_the_commit_of_a_released_job_is_refused(table):
    table.ingest("a")
    table.assign("job", "a")
    assert "still running" in table.commit(ReleaseJobs(("job",))).reason
    table.clock.now_ms += 1000
    with table.store.reading() as state:
        assert [j.id for j in state.jobs.expired(table.clock.now_ms)] == ["job"]
    assert table.commit(ReleaseJobs(("job",))).status is Status.APPLIED
    with pytest.raises(StateMovedOnError, match="no longer holds"):
        table.store.commit_or_raise(compaction(table, "job", "a"))
    assert table.assign("job2", "a").status is Status.APPLIED


def test_of_several_jobs_only_the_expired_are_released(table):
    table.ingest("a", "b")
    table.assign("job1", "a", lease_ms=1000)
    table.assign("job2", "b", lease_ms=2000)
    table.clock.now_ms += 1000
    assert table.commit(ReleaseJobs(("job1", "job2"))).status is Status.APPLIED
    with table.store.reading() as state:
        assert [j.id for j in state.jobs.assigned()] == ["job2"]


def test_renewing_never_shortens_a_lease(table):
    table.ingest("a", "b")
    table.assign("job1", "a", lease_ms=1000)
    table.assign("job2", "b", lease_ms=3000)
    table.commit(RenewLeases(("job1", "job2"), START_MS + 2000))
    with table.store.reading() as state:
        assert [j.lease_expiry_ms - START_MS for j in state.jobs.assigned()] == [2000, 3000]


def test_a_shortened_lease_ends_sooner_and_can_be_renewed(table):
    table.ingest("a", "b")
    table.assign("job1", "a", lease_ms=1000)
    table.assign("job2", "b", lease_ms=3000)
    shorten = ShortenLeases(("job1", "job2", "gone"), START_MS + 2000)
    assert table.commit(shorten).status is Status.APPLIED
    with table.store.reading() as state:
        assert [j.lease_expiry_ms - START_MS for j in state.jobs.assigned()] == [1000, 2000]
    again = table.commit(ShortenLeases(("job1", "job2"), START_MS + 2500))
    assert again.status is Status.ALREADY_DONE
    assert table.commit(ShortenLeases(("gone",), START_MS)).status is Status.ALREADY_DONE
    table.commit(RenewLeases(("job2",), START_MS + 9000))
    with table.store.reading() as state:
        assert [j.lease_expiry_ms - START_MS for j in state.jobs.assigned()] == [1000, 9000]


def test_the_id_of_a_released_job_is_never_used_again(table):
    table.ingest("a")
    table.assign("job", "a")
    table.commit(ReleaseJobs(("job",), given_up=True))
    assert "used before" in table.assign("job", "a").reason


def test_a_renewed_lease_keeps_the_files_and_a_lost_one_cannot_be_renewed(table):
    table.ingest("a")
    table.assign("job", "a", lease_ms=1000)
    table.commit(RenewLeases(("job",), START_MS + 5000))
    table.clock.now_ms += 2000
    assert table.commit(ReleaseJobs(("job",))).refused
    table.clock.now_ms += 3000
    table.commit(ReleaseJobs(("job",)))
    assert (
        "no longer holds its files" in table.commit(RenewLeases(("job",), START_MS + 9000)).reason
    )


# rule 5: nothing referenced or held is deleted


def compact(table: StateTable) -> StateTable:
    """File a lost its last reference at 4."""
    table.ingest("a")
    table.assign("job", "a")
    table.commit(compaction(table, "job", "a"))
    return table


def test_a_referenced_file_is_not_collected(table):
    compact(table)
    assert "still referenced" in table.commit(CollectFiles(("a", "out"), 4)).reason


def test_collection_is_two_entries_and_raises_the_horizon(table):
    compact(table)
    with table.store.reading() as state:
        assert [f.path for f in state.collection.unreferenced(table.clock.now_ms, 9)] == ["a"]
    assert table.commit(CollectFiles(("a",), 4)).status is Status.APPLIED
    with table.store.reading() as state:
        assert state.horizon == 4
        assert state.collection.unreferenced(table.clock.now_ms, 9) == []
        assert [f.path for f in state.collection.collecting(9)] == ["a"]
        assert state.files.known(["a", "out", "x"]) == {"a", "out"}
    with (
        pytest.raises(InvalidRequestError, match="oldest readable version is 4"),
        table.store.reading(3),
    ):
        pass
    assert table.leaf_paths("root", 4) == ["out"]
    assert table.commit(FilesCollected(("a",))).status is Status.APPLIED
    assert table.commit(FilesCollected(("a",))).status is Status.ALREADY_DONE
    with table.store.reading() as state:
        assert state.files.known(["a"]) == set()


def test_a_collection_without_files_raises_the_horizon(table):
    table.ingest("a")
    table.commit(DeleteRows((Region((Range(20, 30),)),)))
    assert table.commit(CollectFiles((), 3)).status is Status.APPLIED
    with table.store.reading() as state:
        assert (state.horizon, state.deletes.count()) == (3, 0)
    assert table.commit(CollectFiles((), 3)).status is Status.ALREADY_DONE
    assert table.commit(CollectFiles((), 9)).refused
    table.commit(CreateHold("hold", "me", 3, START_MS + 10))
    assert "hold of me keeps version 3" in table.commit(CollectFiles((), 4)).reason


def test_the_second_step_without_the_first_is_refused(table):
    compact(table)
    assert "not being collected" in table.commit(FilesCollected(("a",))).reason


def test_a_horizon_that_leaves_a_version_with_the_file_readable_is_refused(table):
    compact(table)
    assert "expected a horizon of at least" in table.commit(CollectFiles(("a",), 3)).reason


def test_a_hold_keeps_its_version_until_it_expires(table):
    compact(table)
    assert table.commit(CreateHold("hold", "me", 3, START_MS + 10)).status is Status.APPLIED
    assert "hold of me keeps version 3" in table.commit(CollectFiles(("a",), 4)).reason
    table.commit(RenewHold("hold", START_MS + 20))
    table.clock.now_ms += 15
    assert table.commit(CollectFiles(("a",), 4)).refused
    table.clock.now_ms += 5
    assert table.commit(CollectFiles(("a",), 4)).status is Status.APPLIED
    assert "does not exist" in table.commit(RenewHold("hold", START_MS + 99)).reason


def test_creating_a_hold_again_extends_it_and_never_shortens_it(table):
    compact(table)
    hold = CreateHold("hold", "me", 3, START_MS + 10)
    table.commit(hold)
    assert table.commit(replace(hold, expiry_ms=START_MS + 20)).status is Status.APPLIED
    assert table.commit(hold).status is Status.ALREADY_DONE
    table.clock.now_ms += 15
    assert table.commit(CollectFiles(("a",), 4)).refused


def test_a_hold_cannot_move_to_another_version(table):
    compact(table)
    hold = CreateHold("hold", "me", 3, START_MS + 10)
    table.commit(hold)
    assert "keeps version 3" in table.commit(replace(hold, version=4)).reason


def test_a_hold_that_expired_or_was_released_can_be_created_again(table):
    compact(table)
    hold = CreateHold("hold", "me", 3, START_MS + 10)
    table.commit(hold)
    table.clock.now_ms += 15
    assert table.commit(replace(hold, expiry_ms=START_MS + 30)).status is Status.APPLIED
    table.commit(ReleaseHold("hold"))
    assert table.commit(replace(hold, expiry_ms=START_MS + 40)).status is Status.APPLIED


def test_a_released_hold_does_not_limit_collection(table):
    compact(table)
    table.commit(CreateHold("hold", "me", 3, START_MS + 10))
    table.commit(ReleaseHold("hold"))
    assert table.commit(CollectFiles(("a",), 4)).status is Status.APPLIED


def test_a_hold_or_follower_below_the_horizon_is_refused_naming_the_oldest_kept(table):
    compact(table)
    table.commit(CollectFiles(("a",), 4))
    hold = CreateHold("hold", "me", 3, START_MS + 10)
    assert "oldest readable version is 4" in table.commit(hold).reason
    assert "oldest readable version is 4" in table.commit(CreateFollower("f", 3)).reason
    assert table.commit(replace(hold, id="later", version=4)).status is Status.APPLIED


def test_a_follower_keeps_unread_changes(table):
    compact(table)
    table.commit(CreateFollower("f", 3))
    (follower,) = table.store.followers()
    # Only compactions follow, but they replaced the file.
    assert (follower.position, follower.lag) == (3, 0)
    assert "follower f is at version 3" in table.commit(CollectFiles(("a",), 4)).reason
    table.store.advance_follower("f", 4)
    table.store.advance_follower("f", 2)  # never back
    cursors = tuple((f.cursor_key, f.position) for f in table.store.followers())
    assert table.commit(CollectFiles(("a",), 4, cursors)).status is Status.APPLIED


def test_a_follower_does_not_inherit_the_cursor_of_one_of_its_name(table):
    compact(table)
    table.commit(CreateFollower("f", 3))
    table.store.advance_follower("f", 5)
    table.commit(DeleteFollower("f"))
    table.commit(CreateFollower("f", 3))
    (follower,) = table.store.followers()
    assert follower.position == 3


# splitting


def test_a_partition_is_split_once(table):
    split = table.make_split(ROOT, 5, "left", "right")
    other = table.make_split(ROOT, 7, "l", "r")
    assert table.commit(split).status is Status.APPLIED
    assert "no longer a leaf" in table.commit(other).reason


def test_children_that_do_not_tile_their_parent_are_refused(table):
    split = table.make_split(ROOT, 5, "left", "right")
    left, right = split.descendants
    for parts in [(left,), (left, left), (right,), ()]:
        assert table.commit(replace(split, descendants=parts, id=str(parts))).refused
    gap = replace(right, region=split_region(right.region, 0, 6)[1])
    assert "do not tile" in table.commit(replace(split, descendants=(left, gap))).reason


def levels(table, depth):
    with table.store.reading() as state:
        region = state.partitions.get(ROOT).region
    parent, results = ROOT, []
    for level in range(1, depth + 1):
        below, region = split_region(region, 0, level)
        left, right = PartitionId(f"l{level}"), PartitionId(f"r{level}")
        results += [
            Partition(left, below, parent),
            Partition(right, region, parent, level == depth),
        ]
        parent = right
    return SplitPartition(ROOT, tuple(results))


def test_several_levels_are_split_at_once_but_not_more_than_eight(table):
    assert "9 levels deep" in table.commit(levels(table, 9)).reason
    assert table.commit(levels(table, 8)).number == 2
    with table.store.reading() as state:
        leaves = list(state.partitions.leaves())
        assert len(leaves) == 9
        parents = [state.partitions.get(PartitionId(f"r{i}")).parent_id for i in range(8, 0, -1)]
        assert parents == [*(f"r{i}" for i in range(7, 0, -1)), "root"]


def test_an_unsplittable_leaf_stays_marked_until_it_gets_new_content(table):
    table.ingest("a")
    assert table.commit(MarkUnsplittable(ROOT, 2)).status is Status.APPLIED
    with table.store.reading() as state:
        assert list(state.partitions.unsplittable()) == ["root"]
    table.assign("job", "a")
    table.commit(compaction(table, "job", "a"))
    with table.store.reading() as state:
        assert list(state.partitions.unsplittable()) == ["root"]
    table.ingest("b")
    with table.store.reading() as state:
        assert list(state.partitions.unsplittable()) == []


def test_a_split_leaf_is_not_marked_as_unsplittable(table):
    table.commit(MarkUnsplittable(ROOT, 1))
    table.split(ROOT, 5, LEFT, RIGHT)
    with table.store.reading() as state:
        assert list(state.partitions.unsplittable()) == []


def test_leaf_rows_count_a_share_of_the_files_above(table):
    table.ingest("a")
    table.split(ROOT, 5, LEFT, RIGHT)
    table.ingest("b", partition=LEFT, keys=(0, 4))
    with table.store.reading() as state:
        assert sorted(state.partitions.leaf_rows()) == [("left", 10, 5), ("right", 0, 5)]


# the log


def test_an_entry_of_a_newer_version_is_refused():
    line = json.dumps({"kind": "teleport", "version": 1, "id": "x"})
    with pytest.raises(DataError, match="newer version"):
        decode_entry(LogEntry(1, 1, 0, "w", line))
    with pytest.raises(DataError, match="newer version"):
        decode_entry(LogEntry(1, 1, 0, "w", line, format_version=2))


def test_every_kind_of_transaction_reads_back_as_it_was_written():
    tree = tuple(tree_from_split_points(SCHEMA, [5]))
    transactions = [
        InitialiseTable(schema_to_json(SCHEMA), tree, "{}", 3),
        SplitPartition(ROOT, tree[1:]),
        BarRuns(3),
        AcceptTime(3),
        DeleteRows((tree[1].region,)),
        DeleteRows((), KeyFile("k", 3, 9, tree[1].region, (".checksum",)), 7, "request"),
        RestoreVersion(3),
        UndoJob("j"),
        ReinitialiseTable(),
        PinFiles("c", ("a",)),
        UnpinFiles("c"),
        AddFiles(
            "j",
            1,
            (NewFile(replace(data_file("a"), smallest_key=(b"\0\xff", "ä", 1)), ((ROOT, 10),)),),
            "request",
        ),
        CommitCompaction("j", ROOT, ("a",), None, 5),
        PushDownReferences((ReferenceMove("a", ROOT, ((LEFT, 3),)),)),
        AssignFiles((JobAssignment("j", ROOT, ("a",), 7),)),
        RenewLeases(("j",), 3),
        ShortenLeases(("j",), 3),
        ChangeProcessing("", "sum(n)", "Mine", "told"),
        ChangeProcessing(iterator=""),
        ReleaseJobs(("j",), True),
        MarkUnsplittable(ROOT, 3),
        RaiseHorizon(3, (("f@2", 4),)),
        CollectFiles(("a",), 3, (("f@2", 4),)),
        FilesCollected(("a",)),
        CreateHold("h", "me", 3, 4),
        RenewHold("h", 3),
        ReleaseHold("h"),
        CreateFollower("f", 3),
        DeleteFollower("f"),
        ChangeSchema(
            (
                AddField(Field("a", PrimitiveType.INT, True, default=3), "b", AggregationOp.SUM),
                AddField(Field("a", DecimalType(5, 2))),
                DropField("a"),
                RenameField("a", "b"),
                WidenField("a", DecimalType(5, 2)),
                OrderFields(("b", "a")),
            )
        ),
        BeginLoad("j"),
        PublishSnapshot("j", 1, (), "request", begun=3),
        ExpireSnapshots((3, 5)),
        CreateExportQueue("q", "ingest", '{"name":"q"}'),
        ChangeExportQueue("q", 3, "{}"),
        DeleteExportQueue("q"),
        ExportRows((QueueExports("q", 3, 2, b"\0\xff"),)),
        CheckUnchanged(3, (tree[1].region,)),
        RecordRequests((WriteRequest("order-7", b"\0\xff"),)),
    ]
    assert {t.kind for t in transactions} == KINDS.keys()
    body = "\n".join(encode(t).line for t in transactions)
    content = decode_entry(LogEntry(1, len(transactions), 0, "w", body))
    assert [d.transaction for d in content] == transactions
    assert [d.fingerprint for d in content] == [encode(t).fingerprint for t in transactions]


def test_a_table_without_state_is_reported(tmp_path):
    table = StateTable(tmp_path, "embedded")
    assert "not initialised" in table.ingest("a").reason
    with pytest.raises(NotFoundError, match="not initialised"), table.store.reading():
        pass


def test_a_table_is_initialised_once(table):
    with pytest.raises(StateMovedOnError, match="already initialised"):
        table.initialise()


def test_log_time_never_decreases(table):
    table.clock.now_ms -= 500
    table.ingest("a")
    with table.store.reading() as state:
        assert state.time_ms == START_MS


def test_a_change_of_processing_from_before_iterators_can_be_read():
    line = (
        '{"kind":"change_processing","version":1,"id":"i","filters":null,"aggregations":"sum(n)"}'
    )
    (content,) = decode_entry(LogEntry(1, 1, 0, "w", line))
    assert content.transaction == ChangeProcessing(None, "sum(n)", id="i")
