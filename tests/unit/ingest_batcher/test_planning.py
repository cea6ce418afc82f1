"""Which waiting files become jobs."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sleeper.ingest_batcher.plan import BatchLimits, plan_batches
from sleeper.jobs.file_requests import FileRequest
from sleeper.tables import TableId

LIMITS = BatchLimits(
    size_min_bytes=100, size_max_bytes=500, files_min=2, files_max=4, file_age_max_ms=60_000
)
NOW = 1_000_000


def requests(*sizes: int, received_ms: int = NOW) -> list[FileRequest]:
    return [
        FileRequest(TableId("0000000a"), f"r{i}", f"bucket/{i}.parquet", size, received_ms)
        for i, size in enumerate(sizes)
    ]


def sizes(batches: list[list[FileRequest]]) -> list[list[int]]:
    return [[request.size_bytes for request in batch] for batch in batches]


@pytest.mark.parametrize(
    ("pending_sizes", "expected"),
    [
        pytest.param([], [], id="nothing"),
        pytest.param([50, 49], [], id="too little"),
        pytest.param([400], [], id="too few"),
        pytest.param([50, 50], [[50, 50]], id="enough of both"),
        pytest.param([1, 1, 1, 1], [[1, 1, 1, 1]], id="full by count though small"),
        pytest.param([1, 1, 1, 1, 1], [[1, 1, 1, 1]], id="the rest waits"),
        pytest.param([300, 300], [[300]], id="full by size, the rest waits"),
        pytest.param([10, 900, 10], [[10], [900]], id="one larger than a job may be is alone"),
        pytest.param([500], [[500]], id="full by one file"),
    ],
)
def test_batches_by_count_and_size(pending_sizes: list[int], expected: list[list[int]]) -> None:
    assert sizes(plan_batches(requests(*pending_sizes), LIMITS, NOW)) == expected


def test_a_file_that_waited_too_long_completes_a_batch() -> None:
    pending = requests(1)
    assert plan_batches(pending, LIMITS, NOW + 59_999) == []
    late = [*pending, *requests(2, received_ms=NOW + 60_000)]
    assert sizes(plan_batches(late, LIMITS, NOW + 60_000)) == [[1, 2]]


@given(st.lists(st.integers(0, 700), max_size=40), st.integers(0, 120_000))
def test_each_request_is_in_one_batch_at_most_and_none_is_over_the_limits(
    pending_sizes: list[int], age_ms: int
) -> None:
    given_requests = requests(*pending_sizes)
    batches = plan_batches(given_requests, LIMITS, NOW + age_ms)
    flat = [request for batch in batches for request in batch]
    assert flat == given_requests[: len(flat)]
    for batch in batches:
        assert len(batch) <= LIMITS.files_max
        assert len(batch) == 1 or sum(r.size_bytes for r in batch) <= LIMITS.size_max_bytes
    left = given_requests[len(flat) :]
    if age_ms >= LIMITS.file_age_max_ms:
        assert left == []
    else:
        assert len(left) < LIMITS.files_max
