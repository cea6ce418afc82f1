"""Decides what a store does at its start."""

from enum import StrEnum

from sleeper.adjunct.definition import EngineType, StoreDefinition
from sleeper.adjunct.store_state import StoreState


class StartAction(StrEnum):
    """What a store does at its start.

    - CONTINUE: it goes on from the position of the version that was found.
    - LOAD: it is created, or created again, and a complete copy of the input is loaded.
    - FOLLOW: it is created, or created again, without data, and goes on from the saved position.
    """

    CONTINUE = "continue"
    LOAD = "load"
    FOLLOW = "follow"


def plan_start(definition: StoreDefinition, is_found: bool, problem: str | None) -> StartAction:
    """Returns the action.

    `is_found` means that a version was found, and `problem` why it is not valid, None if it is.
    A store in memory is never found.
    """
    if definition.type is EngineType.ROCKSDB and is_found and problem is None:
        return StartAction.CONTINUE
    return StartAction.LOAD if definition.bootstrap else StartAction.FOLLOW


def find_problem(definition: StoreDefinition, state: StoreState, now_ms: int) -> str | None:
    """Returns why a version that was found is not valid, apart from its input; None if it is."""
    for what, found, expected in (
        ("input", state.input, definition.input),
        ("partition", state.partition, definition.partition_text),
        ("extractor", state.extractor, definition.extractor),
    ):
        if found != expected:
            return f"its {what} was {found} (expected {expected})"
    age_seconds = (now_ms - state.updated_ms) / 1000
    if age_seconds > definition.max_age_seconds:
        return (
            f"it was last updated {age_seconds:,.0f} s ago (expected at most "
            f"{definition.max_age_seconds:,.0f} s)"
        )
    if definition.bootstrap and (state.is_incomplete or not state.is_bootstrapped):
        return "it lacks history, because it was created without a bootstrap"
    return None
