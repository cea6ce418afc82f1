"""What every transaction is."""

import uuid
from abc import ABC, abstractmethod
from typing import ClassVar

from sleeper.statestore.fold import Fold
from sleeper.statestore.outcome import Verdict


def new_transaction_id() -> str:
    """A fresh id, random."""
    return uuid.uuid4().hex


class Transaction(ABC):
    """One change. Subclasses are frozen dataclasses with a field `id`.

    `kind` names the type in the log. `remembered` says whether the fold keeps the id, so
    that it cannot be used twice; those that change nothing the second time anyway, such
    as renewing a lease, need no memory.
    """

    __slots__ = ()

    kind: ClassVar[str]
    json_version: ClassVar[int] = 1
    remembered: ClassVar[bool] = True
    id: str

    @abstractmethod
    def validate(self, fold: Fold) -> Verdict:
        """Whether it may be applied to the fold as it is now. Changes nothing."""

    @abstractmethod
    def apply(self, fold: Fold) -> None:
        """Changes the fold. Called after `validate` said so, here or where it was logged."""
