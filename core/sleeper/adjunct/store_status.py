"""The status of a store."""

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class StoreStatus:
    """The status of a store.

    - `version`: the dataset of a bounded input; None for an input of changes.
    - `offset`: the position in each partition of the input.
    - `lag`: the number of transactions, messages or datasets that the store lacks; None if unknown.
      `newest` is the newest position of the input, or the name of its newest dataset.
    - `bootstrapped`: a complete copy was made. `incomplete`: data from before the store's first
      position is missing.
    - `bytes`: the size on disk, or of keys and values in memory.
    - `is_serving`: lookups are answered. `is_filling`: the process of this object fills the store.
    - `updated_ms`: the time at which the store last had all data of its input.
    - `problem`: why the last update failed; None if it did not.
    - `building`: the number of keys of the version that is being built; None if none is.
    - `filled_by`: the process that fills the store; None if none does. That process reported `lag`,
      `newest`, `building` and `problem` at `reported_ms`.
    """

    name: str
    input: str
    type: str
    partition: str | None
    is_serving: bool
    is_filling: bool
    version: str | None = None
    offset: Mapping[str, str] = field(default_factory=dict)
    lag: int | None = None
    newest: str | None = None
    bootstrapped: bool = False
    incomplete: bool = False
    bytes: int = 0
    updated_ms: int = 0
    problem: str | None = None
    building: int | None = None
    filled_by: str | None = None
    reported_ms: int | None = None
