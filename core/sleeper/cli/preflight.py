"""`sleeper preflight`: checks before a deployment to AWS."""

from pathlib import Path
from typing import Annotated

import typer

from sleeper.cli.arguments import OutputKind, OutputOption
from sleeper.cli.output import print_listings


def preflight(
    file: Annotated[
        Path | None,
        typer.Argument(
            metavar="[FILE]", help="The instance.properties of the folder to be deployed."
        ),
    ] = None,
    instance_id: Annotated[
        str | None,
        typer.Option("--id", metavar="ID", help="Instead of the sleeper.id of the file."),
    ] = None,
    offline: Annotated[
        bool, typer.Option("--offline", help="Check only the folder and this machine.")
    ] = False,
    is_published: Annotated[
        bool,
        typer.Option("--published", help="The images are published, so this machine builds none."),
    ] = False,
    adopts: Annotated[
        bool, typer.Option("--adopt", help="Accept what a destroyed instance of the id left.")
    ] = False,
    output: OutputOption = OutputKind.TEXT,
) -> None:
    """Check an account, this machine and a folder before a deployment.

    Covers credentials, the bootstrap of CDK, quotas, services of the region, networks, sizes of
    tasks and templates, what a destroyed instance left, and Docker. Nothing is changed. The exit
    status is 1 if there is an error; warnings are limits that an instance may meet later.

    \b
    Examples:
      sleeper preflight flights/instance.properties
      sleeper preflight flights/instance.properties --offline
    """
    from sleeper.preflight.aws.account import AwsAccount
    from sleeper.preflight.finding import Level
    from sleeper.preflight.service import describe_findings, run_preflight
    from sleeper.properties.instance import ID

    overrides = {ID.name: instance_id} if instance_id else {}
    findings = run_preflight(
        file,
        overrides,
        None if offline else AwsAccount(),
        builds=not is_published,
        adopts=adopts,
    )
    print_listings([describe_findings(findings)], output)
    if any(each.level is Level.ERROR for each in findings):
        raise typer.Exit(1)
