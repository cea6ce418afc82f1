"""Bugs of holds and floors, which keep the versions that are read from garbage collection."""

from simulation.bugs import rules
from simulation.bugs.mutation import Mutation
from simulation.bugs.planted_bug import BOTH, PlantedBug
from simulation.faults import PAUSED

_HOLDS = "sleeper.statestore.holds"
_FLOOR = "sleeper.statestore.floor:Floor"
_COLLECTION = "sleeper.garbage_collection.collection"
_KEPT = (rules.HELD, rules.HORIZON, rules.READS, rules.EXISTS)
_HOLD = ("read_held_version", "hold_version", "collect", "remove_all_rows", PAUSED)
_READ = ("read_held_version", "open_reader", "use_reader", "collect", "remove_all_rows", PAUSED)

BUGS = (
    PlantedBug(
        "holds-not-read-again",
        "the collector reads the holds again after it has raised the horizon",
        Mutation(f"{_COLLECTION}:leave_held", "holds = store.holds.unexpired()", "holds = []"),
        _KEPT,
        BOTH,
        focus=_HOLD,
        size=80,
        seeds_max=60,
    ),
    PlantedBug(
        "hold-not-checked",
        "a reader gives up a hold that it wrote after the horizon was raised",
        Mutation(f"{_HOLDS}:Holds.take", "self.check(hold.version)", "hold.version"),
        _KEPT,
        BOTH,
        focus=_HOLD,
        size=80,
        seeds_max=60,
    ),
    PlantedBug(
        "floor-not-checked",
        "a reader checks the floor that it wrote",
        Mutation(f"{_FLOOR}.enter", "holds.check(version)", "version"),
        _KEPT,
        BOTH,
        focus=_READ,
        size=80,
        seeds_max=60,
    ),
    PlantedBug(
        "floor-above-its-readers",
        "a floor moves no further than the oldest version that is read",
        Mutation(
            f"{_FLOOR}._renew",
            "version = min(self._readers) if self._readers else max(newest, before.version)",
            "version = max(newest, before.version)",
        ),
        _KEPT,
        BOTH,
        focus=_READ,
        size=80,
        seeds_max=30,
    ),
    PlantedBug(
        "hold-not-renewed",
        "a read that goes on keeps its version",
        Mutation(
            "sleeper.query.hold:renew_hold",
            "extend_hold(store, hold_id, now_ms, seconds, period_ms)",
            "store.holds",
        ),
        _KEPT,
        BOTH,
        focus=("open_reader", "use_reader", "ingest_from_memory"),
        size=60,
    ),
    PlantedBug(
        "hold-counted-as-expired",
        "a hold counts until its expiry",
        Mutation(
            f"{_HOLDS}:is_over",
            "return hold.expiry_ms + MARGIN_MS <= moment_ms",
            "return hold.expiry_ms - 60 * MARGIN_MS <= moment_ms",
        ),
        _KEPT,
        BOTH,
        focus=_HOLD,
        size=60,
        seeds_max=30,
    ),
    PlantedBug(
        "released-hold-still-counts",
        "a hold ends when it is released",
        Mutation(f"{_HOLDS}:Holds.release", "self._port.delete(list(hold_ids))", "list(hold_ids)"),
        (rules.RELEASED,),
        BOTH,
        focus=("hold_version", "release_version"),
    ),
    PlantedBug(
        "holds-ignored-by-the-collector",
        "the collector finds the files that no hold needs",
        Mutation(
            f"{_COLLECTION}:find_claims",
            "holds = store.holds.unexpired()",
            "holds = store.holds.unexpired()[:0]",
        ),
        (rules.COLLECTED, rules.ERROR),
        BOTH,
        focus=("hold_version", "remove_all_rows", "ingest_from_memory"),
        seeds_max=30,
    ),
)
