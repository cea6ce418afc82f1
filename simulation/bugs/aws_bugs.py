"""Bugs of the adapters of AWS, which no history of a local instance can find."""

from simulation.bugs import rules
from simulation.bugs.mutation import Mutation
from simulation.bugs.planted_bug import PlantedBug

_AWS = ("aws",)

BUGS = (
    PlantedBug(
        "unknown-append-acknowledged",
        "an append whose outcome is unknown is not acknowledged",
        Mutation(
            "sleeper.aws.shared_appends:SharedAppends._send",
            "append.settle(error)",
            "append.settle()",
        ),
        (rules.LOST, rules.ERROR, rules.READS, rules.ROWS),
        _AWS,
        ("unavailable", "throttled", "ingest_from_memory"),
        100,
    ),
    PlantedBug(
        "files-in-two-jobs",
        "the batcher gives a file to one job",
        Mutation(
            "sleeper.aws.file_requests:DynamoFileRequests.assign",
            '"attribute_exists(#waiting) AND attribute_not_exists(#jobId)",',
            '"attribute_exists(#waiting)",',
        ),
        (rules.ONCE, rules.ROWS),
        _AWS,
        ("ingest_by_batcher", "create_batches"),
    ),
)
