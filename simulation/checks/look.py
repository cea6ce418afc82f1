"""What the check of a system sees, and the registration of such checks."""

from dataclasses import dataclass, field
from random import Random

from simulation.model.fold import TableModel
from simulation.model.observer import Observer
from sleeper.instance import Instance
from sleeper.tables import TableId


@dataclass(frozen=True, slots=True)
class Look:
    """The instance while all processes stand still, with the models of its tables.

    `is_end`: all work is done, so what systems derive must be complete. `has_right_clocks`: no
    clock of the history was ever wrong, so times of several tables can be compared. `checked` names
    what earlier looks have checked and what does not change until the end.
    """

    observer: Observer
    random: Random
    is_end: bool = False
    has_right_clocks: bool = True
    checked: set[str] = field(default_factory=set)

    @property
    def instance(self) -> Instance:
        """The instance, read only."""
        return self.observer.instance

    def model(self, table_id: str) -> TableModel | None:
        """Returns the model of an active table, None if it has none."""
        if TableId(table_id) not in self.observer.names:
            return None
        return self.observer.models.get(TableId(table_id))
