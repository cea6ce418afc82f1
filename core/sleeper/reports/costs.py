"""The report on costs: what an instance costs a month at list prices."""

import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from sleeper.billing.prices import Prices, read_prices
from sleeper.billing.use import MonthlyUse
from sleeper.errors import SleeperError
from sleeper.instance import Instance
from sleeper.properties.instance import OPTIONAL_STACKS, OptionalStack
from sleeper.reports.output import Column, ColumnKind, Listing
from sleeper.tables import TableId

logger = logging.getLogger(__name__)
_GIB = 2**30
_SUM = "sum"


@dataclass(frozen=True, slots=True)
class Cost:
    """The dollars a month of a part, measured by AWS or estimated. The last one is the sum."""

    part: str
    detail: str
    table: str | None
    basis: str | None
    dollars: float


COST_COLUMNS = (
    Column("part", "Part"),
    Column("table", "Table"),
    Column("detail", "Month"),
    Column("basis", "Basis", value=lambda cost: cost.basis),
    Column("dollars", "Dollars", ColumnKind.DOLLARS),
)


def list_costs(instance: Instance, table_id: TableId | None = None) -> Listing:
    """Lists the costs of a month, with `table_id` those of one table."""
    if instance.monthly_use is None:
        text = "this instance costs nothing: it uses no service of AWS"
        return Listing.describe("costs", text, COST_COLUMNS, [Cost(_SUM, "", None, None, 0.0)])
    prices, sizes = read_prices(), _read_sizes(instance)
    uses = [*instance.monthly_use(sum(sizes.values())), *_use_of_tables(instance, sizes)]
    if table_id is not None:
        name = instance.tables.index.get(table_id).name
        uses = [each for each in uses if each.table == name]
    costs = describe_costs(uses, prices)
    summary = f"{costs[-1].dollars:,.2f} dollars a month at list prices of {prices.region}"
    note = f"{prices.source}; not counted: data transfer, EMR, EKS, Athena, API Gateway, secrets"
    return Listing.describe("costs", summary, COST_COLUMNS, costs, note)


def _read_sizes(instance: Instance) -> dict[str, int]:
    """Returns the bytes of the data files of each table."""
    sizes = {}
    for ref in instance.tables.index.list():
        try:
            with instance.tables.state(ref.id).reading() as state:
                sizes[ref.name] = state.files.totals().bytes
        except SleeperError as error:
            logger.warning("could not read table %s: %s", ref.name, error)
    return sizes


def _use_of_tables(instance: Instance, sizes: Mapping[str, int]) -> Iterator[MonthlyUse]:
    has_metrics = OptionalStack.TABLE_METRICS in instance.properties().get(OPTIONAL_STACKS)
    for name, size in sizes.items():
        amounts = {"s3_gb_month": size / _GIB}
        yield MonthlyUse("data files", f"{size / _GIB:,.1f} GiB", amounts, True, name)
        if has_metrics:
            yield MonthlyUse("metrics", "9 metrics", {"metric_month": 9}, False, name)


def describe_costs(uses: Sequence[MonthlyUse], prices: Prices) -> list[Cost]:
    """Returns the costs, and their sum."""
    costs = [
        Cost(
            each.part,
            each.detail,
            each.table,
            "measured" if each.is_measured else "estimated",
            prices.cost(each.amounts),
        )
        for each in uses
    ]
    return [*costs, Cost(_SUM, "", None, None, sum(each.dollars for each in costs))]
