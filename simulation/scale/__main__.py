"""`python -m simulation.scale`: simulates an instance at scale, and draws docs/scale-*.svg."""

import argparse
import json
import time
from pathlib import Path

from simulation.scale.chart import Chart, draw
from simulation.scale.rules import describe, read_rules
from simulation.scale.scenarios import SCENARIOS, Setting, month
from simulation.scale.work import MEASURED, read_works

_DOCS = Path(__file__).parents[2] / "docs"


def main() -> None:
    """Runs the scenarios, prints their figures, and draws their charts."""
    parser = argparse.ArgumentParser(prog="python -m simulation.scale", description=__doc__)
    parser.add_argument("scenario", nargs="*", help=f"{', '.join(SCENARIOS)}, month; default: all")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--rules", action="store_true", help="print the product's rules and end")
    parser.add_argument(
        "--measure", action="store_true", help="measure the works of real code first: 30 s"
    )
    arguments = parser.parse_args()
    if arguments.measure:
        from simulation.scale.measure import measure

        MEASURED.write_text(json.dumps(measure(), indent=1) + "\n")
    rules = read_rules()
    if arguments.rules:
        print(describe(rules))
        return
    setting = Setting(rules, read_works(), arguments.seed)
    for name in arguments.scenario or [*SCENARIOS, "month"]:
        start = time.monotonic()
        if name == "month":
            _print_month(setting)
        else:
            for chart in SCENARIOS[name](setting):
                _print(chart)
                (_DOCS / f"{chart.name}.svg").write_text(draw(chart))
        print(f"-- {name}: {time.monotonic() - start:.0f} s\n")


def _print(chart: Chart) -> None:
    print(f"{chart.title} ({chart.x.label} -> {chart.y.label})")
    for line in chart.lines:
        points = " ".join(f"{x:,.4g}:{y:,.4g}" for x, y in line.points)
        print(f"  {line.name:26} {points}")


def _print_month(setting: Setting) -> None:
    result = month(setting)
    for purpose, dollars in sorted(result.dollars_month.items(), key=lambda each: -each[1]):
        if dollars >= 1:
            print(f"  {purpose:36} {dollars:12,.0f} dollars")
    for operation in result.rounds:
        print(f"  a round of {operation:28} {result.round_seconds(operation):10,.0f} s")
    runs = result.world.ledger.total("lambda_million_invocations")
    print(f"  runs of functions {runs:,.0f}, rounds skipped {result.operations.skipped:,}")


if __name__ == "__main__":
    main()
