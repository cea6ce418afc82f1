"""Runs the checks, and describes their findings."""

from collections.abc import Sequence
from pathlib import Path

from sleeper.admin.instance_folder import read_instance_folder
from sleeper.preflight.account import Account, check_account
from sleeper.preflight.finding import Finding, Level
from sleeper.preflight.folder import check_folder
from sleeper.preflight.tools import check_tools
from sleeper.reports.output import Column, Listing, pluralize, summarize

_COLUMNS = (
    Column("level", "Level", value=lambda finding: finding.level.value),
    Column("check", "Check"),
    Column("message", "Finding"),
)


def run_preflight(
    instance_file: Path | None,
    overrides: dict[str, str],
    account: Account | None,
    *,
    builds: bool = True,
    adopts: bool = False,
) -> list[Finding]:
    """Returns the findings on a folder that is to be deployed, errors first.

    Without an account, only those on the folder and on this machine. A deployment that `builds`
    makes images on this machine. One that `adopts` imports what a destroyed instance left.
    InvalidRequestError if a property, a schema or a split point is invalid.
    """
    folder = read_instance_folder(instance_file, overrides)
    properties = folder.properties
    findings = [
        *check_folder(folder),
        *(check_tools(properties) if builds else ()),
        *(check_account(properties, account, adopts=adopts) if account else ()),
    ]
    order = [Level.ERROR, Level.WARNING, Level.OK]
    return sorted(findings, key=lambda each: order.index(each.level))


def describe_findings(findings: Sequence[Finding]) -> Listing:
    """Returns a row per finding."""
    counts = {f"{level}s": _count(findings, level) for level in (Level.ERROR, Level.WARNING)}
    summary = summarize(pluralize(len(findings), "finding"), counts)
    return Listing.describe("preflight", summary, _COLUMNS, findings)


def _count(findings: Sequence[Finding], level: Level) -> int:
    return sum(each.level is level for each in findings)
