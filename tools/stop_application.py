"""Stops the idle application of EMR Serverless before a deployment.

    python -m tools.stop_application [--id ID] FILE

FILE is the `instance.properties` that is deployed. After its last job, an application runs for some
minutes, in which CloudFormation fails to change it. `make deploy` stops it first; the next job
starts it. A job is not cancelled: the deployment then fails only if it changes the application.
"""

import argparse
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from sleeper.admin.instance_folder import read_instance_folder
from sleeper.aws.clients import aws_client
from sleeper.aws.machines import ServerlessApplication
from sleeper.errors import SleeperError
from sleeper.preflight.aws.account import AwsAccount
from sleeper.properties.deployed import SERVERLESS_APPLICATION
from sleeper.properties.instance import ID

_PAUSE_SECONDS, _PAUSES_MAX = 5.0, 60


def stop_idle(
    client: Any, deployed: Mapping[str, str] | None, sleep: Callable[[float], None]
) -> str | None:
    """Returns the id of the deployed application if it is stopped, None if there is none.

    SleeperError if it has jobs, or cannot be stopped.
    """
    name = (deployed or {}).get(SERVERLESS_APPLICATION.name)
    if not name:
        return None
    application = ServerlessApplication(client, name)
    for _ in range(_PAUSES_MAX):
        if not application.stop_if_idle():
            break
        sleep(_PAUSE_SECONDS)
    return name


def main(arguments: list[str]) -> None:
    """Stops the application, or prints why it runs."""
    parser = argparse.ArgumentParser()
    parser.add_argument("file", type=Path)
    parser.add_argument("--id")
    chosen = parser.parse_args(arguments)
    overrides = {ID.name: chosen.id} if chosen.id else {}
    try:
        instance_id = read_instance_folder(chosen.file, overrides).properties.get(ID)
        deployed = AwsAccount().deployed_properties(instance_id)
        stop_idle(aws_client("emr-serverless"), deployed, time.sleep)
    except SleeperError as error:
        print(f"EMR Serverless is not stopped: {error}", file=sys.stderr)


if __name__ == "__main__":
    main(sys.argv[1:])
