"""The CDK app: reads a folder of properties and synthesizes the instance.

    cdk deploy --all -c instance=path/to/instance.properties

`-c id=`, `-c vpc=`, `-c subnets=` (comma-separated) and `-c email=` override the file, and
suffice without one. `-c deployPaused=true` disables the schedules. `-c account=` and `-c region=`
make the names of buckets plain texts, by which CloudFormation can import them, and
`-c bucketNamesRegion=true` adds the region to these names. The app does not call AWS.
"""

import sys
from pathlib import Path
from typing import Any

import aws_cdk as cdk
from cdk_nag import AwsSolutionsChecks

from sleeper.admin.instance_folder import InstanceFolder, read_instance_folder
from sleeper.errors import SleeperError
from sleeper.properties.declaration import Property
from sleeper.properties.deployed import stack_name
from sleeper.properties.instance import BUCKET_NAMES_REGION, ERRORS_EMAIL, ID, SUBNETS, VPC
from stacks.constructs.code import PLATFORMS
from stacks.instance import SleeperInstance

_OVERRIDES: dict[str, Property[Any]] = {
    "id": ID,
    "vpc": VPC,
    "subnets": SUBNETS,
    "email": ERRORS_EMAIL,
    "bucketNamesRegion": BUCKET_NAMES_REGION,
}


def make_app(context: dict[str, str] | None = None, outdir: str | None = None) -> cdk.App:
    """Returns the app before synthesis. SleeperError if a property is invalid."""
    app = cdk.App(context=context, outdir=outdir)
    folder = _read_folder(app)
    platform = app.node.try_get_context("lambda_platform") or PLATFORMS[0]
    if platform not in PLATFORMS:
        raise SystemExit(f"lambda_platform is {platform!r}: expected {', '.join(PLATFORMS)}")
    for warning in folder.warnings:
        print(warning, file=sys.stderr)
    SleeperInstance(
        app,
        stack_name(folder.properties.get(ID)),
        folder=folder,
        code_platform=platform,
        account=app.node.try_get_context("account"),
        region=app.node.try_get_context("region"),
        is_paused=_is_paused(app),
    )
    cdk.Validations.of(app).add_plugins(AwsSolutionsChecks(app))
    return app


def _is_paused(app: cdk.App) -> bool:
    value = app.node.try_get_context("deployPaused") or False
    chosen = {"true": True, "false": False}.get(str(value).lower())
    if chosen is None:
        raise SystemExit(f"deployPaused is {value!r}: expected true or false")
    return chosen


def _read_folder(app: cdk.App) -> InstanceFolder:
    file = app.node.try_get_context("instance")
    given = {
        declaration.name: value
        for name, declaration in _OVERRIDES.items()
        if (value := app.node.try_get_context(name))
    }
    if not file and ID.name not in given:
        raise SystemExit("no instance: pass -c instance=path/to/instance.properties or -c id=ID")
    return read_instance_folder(Path(file) if file else None, given)


if __name__ == "__main__":
    try:
        make_app().synth()
    except SleeperError as error:
        sys.exit(f"nothing is deployed: {error}")
