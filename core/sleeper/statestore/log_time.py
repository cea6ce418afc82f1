"""How far a table's log may move its time at once."""

from sleeper.clock import iso_time
from sleeper.errors import UnavailableError
from sleeper.statestore.fold import APPLIED_ID_DAYS, DAY_MS

LOG_TIME_JUMP_MS_MAX = APPLIED_ID_DAYS * DAY_MS
"""A longer jump forgets every job's id at once."""


def is_jump(now_ms: int, log_time_ms: int) -> bool:
    """Whether this clock is so far ahead of the log that it may be wrong."""
    return now_ms - log_time_ms > LOG_TIME_JUMP_MS_MAX


def jump_error(now_ms: int, log_time_ms: int) -> UnavailableError:
    """The error of a commit that would move the log's time so far."""
    return UnavailableError(
        f"this machine's clock, {iso_time(now_ms)}, is {days(now_ms - log_time_ms)} ahead of the "
        f"table's last commit, {iso_time(log_time_ms)} (expected at most "
        f"{days(LOG_TIME_JUMP_MS_MAX)}): if the clock is wrong, set it; if it is right, "
        "run `sleeper table accept-time NAME`"
    )


def days(milliseconds: int) -> str:
    """A length of time for people."""
    count = milliseconds / DAY_MS
    return f"{count:.0f} days" if count >= 2 else f"{count:.2f} days"
