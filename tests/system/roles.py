"""Permissions of the roles of a deployed instance.

The emulator gives functions of the zip their roles' credentials; what the tests run themselves
takes its role on here, although the role trusts a service alone.
"""

import json
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.servers.aws_clients import forget_clients
from tests.servers.ministack import ACCOUNT
from tests.system.deployed import Client

_TRUST = {
    "Version": "2012-10-17",
    "Statement": [
        {
            "Effect": "Allow",
            "Principal": {"AWS": f"arn:aws:iam::{ACCOUNT}:root"},
            "Action": "sts:AssumeRole",
        }
    ],
}
# As boto3 and the object store have it.
_REFUSED = re.compile("not authorized to perform|lacked the necessary privileges|403 Forbidden")


def credentials_of(client: Client, role_arn: str) -> dict[str, str]:
    """Returns environment variables with the role's credentials for an hour."""
    name = role_arn.rpartition("/")[2]
    client("iam").update_assume_role_policy(RoleName=name, PolicyDocument=json.dumps(_TRUST))
    credentials = client("sts").assume_role(RoleArn=role_arn, RoleSessionName="test")["Credentials"]
    return {
        "AWS_ACCESS_KEY_ID": credentials["AccessKeyId"],
        "AWS_SECRET_ACCESS_KEY": credentials["SecretAccessKey"],
        "AWS_SESSION_TOKEN": credentials["SessionToken"],
    }


@contextmanager
def acting_as(credentials: Mapping[str, str]) -> Iterator[None]:
    """Gives this process the credentials, until the context ends."""
    with pytest.MonkeyPatch.context() as patch:
        for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN"):
            if name in credentials:
                patch.setenv(name, credentials[name])
            else:
                patch.delenv(name, raising=False)
        forget_clients()
        yield
    forget_clients()


def is_allowed(client: Client, role_arn: str, action: str, resource: str) -> bool:
    """Whether the role's policies allow that, without a condition."""
    answer = client("iam").simulate_principal_policy(
        PolicySourceArn=role_arn, ActionNames=[action], ResourceArns=[resource]
    )
    (message,) = answer["EvaluationResults"]
    return bool(message["EvalDecision"] == "allowed")


def find_refusals(*folders: Path) -> list[str]:
    """Returns the log lines that report denied actions."""
    logs = [log for folder in folders for log in sorted(folder.glob("*.log"))]
    return [
        line
        for log in logs
        for line in log.read_text(errors="replace").splitlines()
        if _REFUSED.search(line)
    ]
