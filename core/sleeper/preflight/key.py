"""Checks of the KMS key that encrypts an instance, and of the keys that encrypted it before."""

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from sleeper.preflight.finding import Finding, error, passed, warning
from sleeper.properties.deployment import FORMER_KMS_KEYS, KMS_KEY
from sleeper.properties.values import InstanceProperties

_CHECK = "encryption"
_PAGE = "docs/security.md has the statements"


@dataclass(frozen=True, slots=True)
class Key:
    """A key of KMS, in the words of its DescribeKey."""

    state: str
    spec: str
    usage: str
    manager: str


# What AWS services accept for encryption. DynamoDB grants itself access only to a user's own key.
_USABLE = Key("Enabled", "SYMMETRIC_DEFAULT", "ENCRYPT_DECRYPT", "CUSTOMER")


def check_key(
    properties: InstanceProperties,
    place: tuple[str, str],
    find_key: Callable[[str], Key | None],
    find_policy: Callable[[str], str],
) -> Iterator[Finding]:
    """Yields findings on the key of the properties, for an instance in a region and an account."""
    arn = properties.get(KMS_KEY)
    if arn is None:
        return
    # arn:PARTITION:kms:REGION:ACCOUNT:key/ID
    region, number = actual = tuple(arn.split(":")[3:5])
    if actual != place:
        expected = f"expected one of account {place[1]}, region {place[0]}"
        yield error(_CHECK, f"key {arn} is of account {number}, region {region} ({expected})")
        return
    key = find_key(arn)
    if key != _USABLE:
        fault = "does not exist" if key is None else f"is {_describe(key)}"
        yield error(_CHECK, f"key {arn} {fault} (expected {_describe(_USABLE)})")
        return
    yield passed(_CHECK, f"key {arn} is {_describe(key)}")
    allowed = _allowed_services(json.loads(find_policy(arn)))
    for service, use in _services(region).items():
        if service not in allowed:
            yield warning(
                _CHECK, f"the policy of key {arn} does not allow {service}, which {use}: {_PAGE}"
            )


def check_kept_keys(
    properties: InstanceProperties, current: Mapping[str, str]
) -> Iterator[Finding]:
    """Yields an error for each key of the deployed properties that roles could no longer use."""
    kept = {properties.get(KMS_KEY), *properties.get(FORMER_KMS_KEYS)}
    names = (KMS_KEY.name, FORMER_KMS_KEYS.name)
    for arn in ",".join(current.get(name, "") for name in names).split(","):
        if arn and arn not in kept:
            yield error(
                "former keys",
                f"older objects are encrypted with key {arn}: add it to {FORMER_KMS_KEYS.name}",
            )


def _describe(key: Key) -> str:
    return f"{key.state}, {key.spec}, {key.usage}, managed by {key.manager}"


def _services(region: str) -> dict[str, str]:
    """Returns what uses the key in its own name in each instance, and for what."""
    return {
        f"logs.{region}.amazonaws.com": "encrypts logs",
        "cloudwatch.amazonaws.com": "sends alarms to the encrypted topic",
        "fargate.amazonaws.com": "encrypts the disks of tasks",
    }


def _allowed_services(policy: Mapping[str, Any]) -> set[str]:
    """Returns the services that a statement of the policy names. Conditions are not evaluated."""
    allowed = set()
    for statement in _as_list(policy.get("Statement", ())):
        principal = statement.get("Principal", {})
        if statement.get("Effect") == "Allow" and isinstance(principal, Mapping):
            allowed.update(_as_list(principal.get("Service", ())))
    return allowed


def _as_list(value: Any) -> Any:
    return [value] if isinstance(value, str | Mapping) else value
