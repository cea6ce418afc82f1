"""Chooses the names of an instance's buckets: `python -m tools.bucket_names [--id ID] FILE`.

FILE is the `instance.properties` that is deployed. The argument for `cdk` is printed that keeps the
names of an existing instance, and adds the region to those of a new one if another region of the
account has an instance of its id. Nothing is printed if the file chooses, or the names are plain.
"""

import argparse
import sys
from pathlib import Path

from sleeper.admin.instance_folder import read_instance_folder
from sleeper.errors import SleeperError
from sleeper.preflight.account import Account
from sleeper.preflight.aws.account import AwsAccount
from sleeper.properties.instance import BUCKET_NAMES_REGION, ID
from sleeper.properties.values import InstanceProperties


def choose_names(properties: InstanceProperties, account: Account) -> str:
    """Returns the argument, or an empty text. SleeperError if the account does not answer."""
    name = BUCKET_NAMES_REGION.name
    if name in properties.values:
        return ""
    deployed = account.deployed_properties(properties.get(ID))
    if deployed is None:
        has_region = account.other_region(properties.get(ID)) is not None
    else:
        has_region = BUCKET_NAMES_REGION.parse(deployed.get(name) or "false")
    return "-c bucketNamesRegion=true" if has_region else ""


def main(arguments: list[str]) -> None:
    """Prints the argument, or exits with 1 and the reason."""
    parser = argparse.ArgumentParser()
    parser.add_argument("file", type=Path)
    parser.add_argument("--id")
    chosen = parser.parse_args(arguments)
    overrides = {ID.name: chosen.id} if chosen.id else {}
    try:
        properties = read_instance_folder(chosen.file, overrides).properties
        print(choose_names(properties, AwsAccount()))
    except SleeperError as error:
        sys.exit(f"the names of buckets are unknown: {error}")


if __name__ == "__main__":
    main(sys.argv[1:])
