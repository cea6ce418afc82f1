"""The simulated instance: queues, functions, tasks and logs, wired as the product's rules say."""

from dataclasses import dataclass
from random import Random
from typing import TypeVar

from simulation.scale.entries import add_files_bytes, append_units, compaction_bytes
from simulation.scale.functions import Functions
from simulation.scale.launcher import Launcher
from simulation.scale.leaves import Leaves
from simulation.scale.ledger import Ledger
from simulation.scale.limits import PARTITION_WRITE_UNITS, TABLE_WRITE_UNITS, Account
from simulation.scale.load import Load
from simulation.scale.log import Capacity, Log
from simulation.scale.queue import Queue
from simulation.scale.rules import Rules
from simulation.scale.timeline import Timeline
from simulation.scale.work import Work
from sleeper.compaction.strategy import StrategySettings
from sleeper.properties.declaration import Property
from sleeper.properties.instance import STATE_COPIES_MAX
from sleeper.properties.table import COMPACTION_FILES_BATCH_SIZE, SIZE_RATIO

T = TypeVar("T")
# Beyond so many references their bytes are extrapolated.
_REFERENCES_MEASURED = 1_000


@dataclass(slots=True)
class Table:
    """A table, or the equal ones of a cohort: its files and its log."""

    number: int
    leaves: Leaves
    log: Log


class World:
    """The services and tables. Parts of the simulation add what runs on them."""

    def __init__(
        self, rules: Rules, works: dict[str, Work], account: Account, load: Load, seed: int = 0
    ) -> None:
        self.rules = rules
        self.works = works
        self.load = load
        self.random = Random(seed)
        self.timeline = Timeline()
        self.ledger = Ledger()
        functions = {each.function.name: each.function for each in rules.schedules.values()}
        receivers = (queue.receiver for queue in rules.queues.values())
        functions |= {each.name: each for each in receivers if each is not None}
        self.functions = Functions(
            self.timeline, account, list(functions.values()), self.ledger, self.random
        )
        self.launcher = Launcher(self.timeline, account)
        self.queues = {name: Queue(rule, self.timeline) for name, rule in rules.queues.items()}
        # All logs are items of one table of DynamoDB.
        self.log_table = Capacity(self.timeline, TABLE_WRITE_UNITS)
        settings = StrategySettings(
            self.setting(COMPACTION_FILES_BATCH_SIZE), self.setting(SIZE_RATIO)
        )
        self.tables = [self._make_table(number, settings) for number in range(load.cohorts)]
        self.commits = 0

    def setting(self, declaration: Property[T]) -> T:
        """Returns the value of a property of tables, as the instance's default sets it."""
        value: T = self.rules.get(declaration.default_from or declaration)
        return value

    def work(self, name: str) -> Work:
        """Returns the work of an operation on a table; most tables have no copy in a process.

        A process keeps the copies of the states that it used last, and the messages of a table go
        to any process.
        """
        copies: int = self.rules.get(STATE_COPIES_MAX)
        warm = min(1.0, copies / self.load.tables)
        return self.works[f"{name}, cold"].mixed(self.works[f"{name}, warm"], warm)

    def open_copy(self) -> Work:
        """Returns what the opening of a copy of a state adds to an operation, on average."""
        warm = self.works["table_metrics, warm"]
        return self.work("table_metrics").plus(warm.scaled(-1))

    def add_files_units(self, commits: int = 1) -> int:
        """Returns the write units of an entry of so many ingests."""
        references = min(self.load.leaves, _REFERENCES_MEASURED)
        return append_units(
            _scaled(add_files_bytes(references, commits), self.load.leaves / references)
        )

    def compaction_units(self, inputs: int, commits: int = 1) -> int:
        """Returns the write units of an entry of so many compactions."""
        return append_units(compaction_bytes(inputs, commits))

    def count_commit(self, weight: int) -> None:
        """Counts transactions of ingests and compactions."""
        self.commits += weight

    def _make_table(self, number: int, settings: StrategySettings) -> Table:
        leaves = Leaves(self.load.cohort * self.load.leaves, settings)
        # A cohort's logs have as many partition keys.
        partition = Capacity(self.timeline, PARTITION_WRITE_UNITS * self.load.cohort)
        return Table(number, leaves, Log(self.timeline, self.rules, partition, self.random))


def _scaled(size: int, times: float) -> int:
    return int(size * times)
