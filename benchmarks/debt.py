"""What compaction owes after many small ingests, what it costs, and what reads pay meanwhile."""

from benchmarks.measuring import Task, run_by_turns
from benchmarks.result import Aim, Figure, Result, figure
from benchmarks.settings import Settings

INGESTS = 10_000
_MODULE = "benchmarks.debt_tasks"
_FEW = {"ingests": 12, "rows": 5_000, "leaves": 256, "ingests_per_creation": 12}
_BIG = {"ingests": 30, "leaves": 8, "ingests_per_creation": 1}
_MANY = {"rows": 1_000, "leaves": 1_000, "ingests_per_creation": 4}
_IN_LEAVES = {
    "sleeper.table.compaction.leaf.rows.min": "0",
    "sleeper.table.compaction.strategy.class": "SizeRatioCompactionStrategy",
}
_BY_ROWS = {
    "sleeper.table.compaction.leaf.rows.min": "65536",
    "sleeper.table.compaction.strategy.class": "CostCompactionStrategy",
}


def measure(settings: Settings) -> Result:
    """Measures. `rows` is the number of small ingests; a big one has a hundred times its rows."""
    ingests = settings.rows or INGESTS
    home = str(settings.folder / "debt")

    def task(function: str, work: dict[str, int], properties: dict[str, str]) -> Task:
        return Task(_MODULE, function, {**work, "home": home, "properties": properties})

    few_runs = run_by_turns(
        {
            "few, by rows": task("compaction", _FEW, _BY_ROWS),
            "few, in leaves": task("compaction", _FEW, _IN_LEAVES),
        },
        settings.repeats,
    )
    big = {**_BIG, "rows": 100 * ingests}
    large = run_by_turns(
        {
            "big, by rows": task("compaction", big, _BY_ROWS),
            "big, in leaves": task("compaction", big, _IN_LEAVES),
            "many": task("reads", {**_MANY, "ingests": ingests}, _BY_ROWS),
        },
        1,
    )
    runs = {**few_runs, **large}
    answers = {name: [run.answer for run in each] for name, each in runs.items()}

    def of(name: str, key: str, what: str, unit: str = "×", aim: Aim | None = None) -> Figure:
        return figure(what, [each[key] for each in answers[name]], unit, aim)

    less = Aim(2, is_most=True)
    figures = (
        of("few, by rows", "of_ingests", "12 ingests, 256 leaves: compaction", aim=less),
        of("few, by rows", "jobs", "12 ingests, 256 leaves: jobs", "jobs"),
        of("few, in leaves", "of_ingests", "the same, references in leaves"),
        of("few, in leaves", "jobs", "the same, jobs", "jobs"),
        of("big, by rows", "amplification", "30 big ingests, 8 leaves: write amplification"),
        of("big, by rows", "files_mean", "the same, files of a lookup, mean", "files"),
        of("big, in leaves", "amplification", "the same by size ratio"),
        of("big, in leaves", "files_mean", "the same, files of a lookup, mean", "files"),
        of("many", "files_mean", "many ingests, 1,000 leaves: files of a lookup, mean", "files"),
        of("many", "files_max", "the same, most", "files", Aim(12, is_most=True)),
        of("many", "amplification", "many ingests: write amplification", aim=Aim(4, is_most=True)),
        of("many", "amplification_bytes", "many ingests: the same, by bytes"),
        of("many", "of_ingests", "many ingests: compaction"),
        of("many", "lookup_p99_ms", "many ingests: lookup, p99", "ms"),
        of(
            "many",
            "lookup_of_compacted",
            "many ingests: lookup, p99 of that after a full compaction",
            aim=Aim(3, is_most=True),
        ),
    )
    work = (
        f"Random rows. Few: 12 ingests of 5,000 rows over 256 leaves. Big: 30 ingests of"
        f" {100 * ingests:,} rows over 8 leaves. Many: {ingests:,} ingests of 1,000 rows over 1,000"
        " leaves. Jobs are created and run after every 12, 1 and 4 ingests, the first two also at"
        " the end until none is left. The number, order and sum of all rows are checked."
    )
    notes = (
        "Write amplification: rows (or bytes) of all data files that were written, of those that"
        " ingests wrote.",
        "Compaction is its processor time with the creation of jobs, of the ingests'.",
        "A lookup may open the files whose key bounds contain the key. It opens those whose key"
        " filter may have it.",
    )
    return Result("debt", work, figures, notes=notes)
