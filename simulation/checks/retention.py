"""The rule that versions and changes stay readable for the retention of a table.

A collection raises the *horizon*, the oldest version that is readable. It *passes* a follower that
has not read for so long that the table no longer keeps changes for it.
"""

from simulation.checks.violation import require
from simulation.model.fold import TableModel
from sleeper.garbage_collection.collection import Retention
from sleeper.statestore.transactions.collection import CollectFiles

_RETAINED = "versions and changes are kept for the retention"


def check_retention(model: TableModel, retention: Retention) -> None:
    """Checks each entry of the log that has raised the horizon."""
    horizon = model.first
    for each in model.log:
        if isinstance(each.transaction, CollectFiles) and each.transaction.horizon > horizon:
            horizon = each.transaction.horizon
            kept_ms = [retention.versions_ms or 0]
            if each.transaction.passed:
                kept_ms.append(retention.followers_ms or 0)
            require(
                model.time_of(horizon) <= each.time_ms - max(kept_ms),
                _RETAINED,
                f"the horizon rises to {horizon}, whose time is {model.time_of(horizon)}",
                table=model.id,
                time_ms=each.time_ms,
                retention=retention,
                passed=each.transaction.passed,
            )
