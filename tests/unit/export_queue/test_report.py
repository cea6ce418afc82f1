"""The text of the status of an export queue."""

from sleeper.export_queue.listings import FailingBucket, QueueState, QueueStatus, describe_status

UNAVAILABLE = "receiver unavailable: http://h: connection refused"


def status_of(*failing: FailingBucket) -> QueueStatus:
    return QueueStatus(
        "q", "t", "ingest", "null:", 119, QueueState.FAILING, 0, 9, 99, 0, None, failing
    )


def failing_lines(*failing: FailingBucket) -> list[str]:
    lines = describe_status(status_of(*failing)).drawing
    return [line.strip() for line in lines if "next call" in line or "more" in line]


def test_buckets_of_an_unavailable_receiver_are_one_line() -> None:
    buckets = [
        FailingBucket(
            n, 2, 1, 0, True, f"export queue 'q', bucket {n}, sequence {n}: {UNAVAILABLE}", 0
        )
        for n in range(119)
    ]
    assert failing_lines(*buckets) == [
        f"failing   119 buckets with 238 exports, next call now: {UNAVAILABLE}"
    ]


def test_other_errors_have_lines_of_their_own() -> None:
    place = "export queue 'q', bucket 3, sequences 4 to 5"
    first = FailingBucket(3, 1, 2, 2, False, f"{place}: ValueError: no", 0)
    others = [FailingBucket(n, 1, 1, 1, False, f"error {n}", 0) for n in range(4, 15)]
    lines = failing_lines(first, *others)
    assert lines[0] == "failing   bucket 3 with 1 export, 2 refusals, next call now: ValueError: no"
    assert len(lines) == 11
    assert lines[-1] == "and 2 more errors: see --output json"
