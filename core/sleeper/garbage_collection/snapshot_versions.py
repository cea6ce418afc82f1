"""The expiry of versions of snapshot tables."""

import logging
from collections.abc import Sequence
from dataclasses import dataclass

from sleeper.clock import Clock, system_clock
from sleeper.errors import InvalidRequestError
from sleeper.properties.table import (
    COLLECTION_DELAY_MINUTES,
    SNAPSHOT_TTL,
    SNAPSHOT_VERSIONS_MIN,
)
from sleeper.properties.values import TableProperties
from sleeper.statestore.holds import Hold
from sleeper.statestore.reading.snapshot_queries import SnapshotVersion
from sleeper.statestore.reading.table_state import TableState
from sleeper.statestore.store import StateStore
from sleeper.statestore.transactions.snapshot_loads import ExpireSnapshots

logger = logging.getLogger(__name__)
_MINUTE_MS = 60_000
_REFUSALS_MAX = 10


@dataclass(frozen=True, slots=True)
class VersionPolicy:
    """Which versions expire: those older than `ttl_ms`, except for the `versions_min` newest.

    Without a time to live, all but the `versions_min` newest, at least one. A version that another
    has replaced stays for `delay_ms`, so that running reads can finish.
    """

    ttl_ms: int | None = None
    versions_min: int = 1
    delay_ms: int = 0

    def expiry_ms(self, version: SnapshotVersion, position: int) -> int | None:
        """Returns when the version expires, None if it does not. `place` 0 is the newest.

        0 means at once: ages are by another clock than the times of the log.
        """
        if position < self.versions_min:
            return None
        has_delay = version.ended_ms is not None and self.delay_ms > 0
        replaced_ms = (version.ended_ms or 0) + self.delay_ms if has_delay else 0
        aged_ms = 0 if self.ttl_ms is None else version.published_ms + self.ttl_ms
        return max(replaced_ms, aged_ms)


def find_policy(properties: TableProperties, has_delay: bool = True) -> VersionPolicy:
    """Returns the policy of a table."""
    ttl_ms, versions_min = properties.get(SNAPSHOT_TTL), properties.get(SNAPSHOT_VERSIONS_MIN)
    if versions_min is None:
        versions_min = 1 if ttl_ms is None else 0
    delay_ms = properties.get(COLLECTION_DELAY_MINUTES) * _MINUTE_MS if has_delay else 0
    # Without a time to live, the newest never expires.
    return VersionPolicy(ttl_ms, max(versions_min, int(ttl_ms is None)), delay_ms)


@dataclass(frozen=True, slots=True)
class VersionStatus:
    """A version that has not expired, with the time at which it does and the holds that keep it.

    `expiry_ms` is None if it does not expire before a newer version is published.
    """

    version: SnapshotVersion
    expiry_ms: int | None
    holds: tuple[Hold, ...] = ()


def find_versions(
    state: TableState, policy: VersionPolicy, holds: Sequence[Hold]
) -> tuple[VersionStatus, ...]:
    """Returns the versions that have not expired, newest first, with the holds that keep them."""
    return tuple(
        VersionStatus(
            version,
            policy.expiry_ms(version, index),
            tuple(hold for hold in holds if _keeps(hold, version)),
        )
        for index, version in enumerate(state.snapshots.versions())
    )


def _keeps(hold: Hold, version: SnapshotVersion) -> bool:
    if hold.is_floor:
        # Floors follow the newest version, which would never expire while it is read. Reads that
        # began before its expiry keep their files.
        return version.ended is not None and hold.version < version.ended
    return version.contains(hold.version)


@dataclass(frozen=True, slots=True)
class ExpiryReport:
    """The versions that expired, or would in a dry run, and those that holds keep."""

    expired: tuple[VersionStatus, ...] = ()
    held: tuple[VersionStatus, ...] = ()


def expire_versions(
    store: StateStore, policy: VersionPolicy, clock: Clock = system_clock, dry_run: bool = False
) -> ExpiryReport:
    """Expires the versions of a snapshot table that its policy does not keep. Idempotent.

    Ages are by the clock and not by the time of the log, which is ahead if any writer's clock was.
    InvalidRequestError if the table is not a snapshot table.
    """
    if not dry_run:
        store.floor.end(store.holds)
    for attempt in range(_REFUSALS_MAX):
        holds = store.holds.unexpired()
        with store.reading() as state:
            if not state.is_snapshot_table:
                raise InvalidRequestError(
                    "not a snapshot table (expected sleeper.table.type=snapshot)"
                )
            now_ms = clock()
            due = _find_due(find_versions(state, policy, holds), now_ms)
        held = tuple(each for each in due if each.holds)
        expired = tuple(each for each in due if not each.holds)
        if dry_run or not expired:
            return ExpiryReport(expired, held)
        numbers = tuple(each.version.number for each in expired)
        (outcome,) = store.commit(ExpireSnapshots(numbers))
        if not outcome.refused:
            logger.info("snapshot versions expired: %s", ", ".join(map(str, numbers)))
            return ExpiryReport(expired, held)
        # A hold was created after the state was read.
        logger.info("retrying expiry (attempt %d refused): %s", attempt + 1, outcome.reason)
    return ExpiryReport((), due)


def _find_due(versions: Sequence[VersionStatus], now_ms: int) -> tuple[VersionStatus, ...]:
    return tuple(
        each for each in versions if each.expiry_ms is not None and each.expiry_ms <= now_ms
    )
