"""The operations of the workload: what a client may do next, and how often.

An operation is a function of a client that makes its random choices from the client's source. It
knows neither the scheduler nor the model. A system adds its own operations with `operation`.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from simulation.workload.client import Client
from sleeper.errors import DataError, SleeperError

Run = Callable[[Client], None]


@dataclass(frozen=True, slots=True)
class Operation:
    """A step of the workload. `applies` says whether the client could do it now.

    `is_background` marks the work of the instance's own processes, which workers and schedules do
    beside the clients.
    """

    name: str
    run: Run
    weight: float
    applies: Callable[[Client], bool]
    is_background: bool


OPERATIONS: dict[str, Operation] = {}
"""All operations by their names, in the order of their registration."""


def always(_client: Client) -> bool:
    """The operation applies at any time."""
    return True


def has_table(client: Client) -> bool:
    """The operation needs a table."""
    return bool(client.catalogue.active())


def operation(
    weight: float,
    applies: Callable[[Client], bool] = has_table,
    is_background: bool = False,
) -> Callable[[Run], Run]:
    """Registers a function as an operation under its name."""

    def register(run: Run) -> Run:
        name = run.__name__
        OPERATIONS[name] = Operation(name, run, weight, applies, is_background)
        return run

    return register


def choose_operation(client: Client, operations: Sequence[Operation]) -> Operation:
    """Returns a random operation that applies, by weight."""
    possible = [each for each in operations if each.applies(client)]
    return client.random.choices(possible, [each.weight for each in possible])[0]


def explains_none(_error: str) -> bool:
    """No stored object was damaged."""
    return False


def run_operation(
    client: Client, chosen: Operation, explains: Callable[[str], bool] = explains_none
) -> str:
    """Runs the operation. Returns `done`, or the error that it met.

    Every error of `sleeper.errors` is an allowed outcome, DataError only if damage `explains` it.
    Others propagate.
    """
    try:
        chosen.run(client)
    except SleeperError as error:
        if isinstance(error, DataError) and not explains(str(error)):
            raise
        return f"{type(error).__name__}: {error}"
    return "done"
