"""Which versions are claimed, and so how far the horizon may be raised."""

from dataclasses import dataclass

from sleeper.statestore.store import StateStore


@dataclass(frozen=True, slots=True)
class Claims:
    """The horizon may be raised to `horizon_max`, because of `lowest`, None if nobody claims.

    `cursors` are the followers' positions by cursor key, for the entry that collects.
    """

    horizon_max: int
    lowest: str | None
    cursors: tuple[tuple[str, int], ...]


def claims_of(store: StateStore, now_ms: int) -> Claims:
    """The claims of unexpired holds and of followers."""
    followers = store.followers()
    with store.reading() as state:
        number = state.number
        time_ms = max(now_ms, state.time_ms)
        claims = [
            (hold.version, f"hold {hold.id} of {hold.owner} at version {hold.version}")
            for hold in state.collection.holds()
            if hold.expiry_ms > time_ms
        ]
    claims += [(f.position, f"follower {f.name} at version {f.position}") for f in followers]
    cursors = tuple((f.cursor_key, f.position) for f in followers)
    if not claims:
        return Claims(number, None, cursors)
    version, lowest = min(claims)
    return Claims(min(number, version), lowest, cursors)
