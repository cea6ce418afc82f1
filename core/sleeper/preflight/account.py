"""Checks of the account and the region to which an instance is deployed."""

import ipaddress
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from sleeper.admin.instance_folder import check_kept_network
from sleeper.errors import InvalidRequestError, SleeperError
from sleeper.preflight.finding import Finding, error, passed, warning
from sleeper.preflight.folder import task_sizes
from sleeper.preflight.key import Key, check_kept_keys, check_key
from sleeper.properties.declaration import INSTANCE_PROPERTIES
from sleeper.properties.deployment import (
    COMMITTER_CONCURRENCY_RESERVED,
    INGEST_CPU_ARCHITECTURE,
    LAMBDA_CONCURRENCY_QUOTA,
    LAMBDA_CPU_ARCHITECTURE,
    SERVERLESS_CORES_MAX,
)
from sleeper.properties.images import NamedImage, Registry, release_tag
from sleeper.properties.instance import (
    ACCOUNT,
    BUCKET_NAMES_REGION,
    COMPACTION_CPU_ARCHITECTURE,
    ID,
    NETWORK_ENDPOINTS,
    OPTIONAL_STACKS,
    REGION,
    SUBNETS,
    VPC,
)
from sleeper.properties.values import InstanceProperties
from sleeper.system import Stack
from sleeper.systems import load, systems

MADE_NETWORK = "10.0.0.0/16"
"""The addresses of a network that the deployment makes."""
_EMR_SERVERLESS = "emr-serverless"
# The first version with assets as CDK publishes them, and the first that lets EMR Serverless pull
# images.
_BOOTSTRAP_VERSION, _BOOTSTRAP_VERSION_OF_EMR = 6, 27
# AWS keeps so much of the account's concurrency unreserved.
_UNRESERVED = 100
_USUAL_CONCURRENCY = 1000
_NEW_ACCOUNT_MEMORY_MB = 3008
_CPU_UNITS = 1024


# Names of quotas.
CONCURRENCY = "concurrent executions of Lambda"
FARGATE_CORES = "processors of Fargate"
EMR_SERVERLESS_CORES = "processors of EMR Serverless"
VPCS = "VPCs of the region"


@dataclass(frozen=True, slots=True)
class Networks:
    """`addresses` are the ranges of each VPC, `subnets` the VPC of each of the given subnets.

    `with_route` are those of the subnets that have a default route.
    """

    addresses: Mapping[str, Sequence[str]]
    subnets: Mapping[str, str]
    with_route: frozenset[str] = frozenset()


class Account(Protocol):
    """What the checks ask. Raises only `sleeper.errors`."""

    def identity(self) -> tuple[str, str]:
        """Returns the number of the account and the region of the credentials."""
        ...

    def bootstrap_version(self) -> int | None:
        """Returns the version of CDK's bootstrap; None if there is none."""
        ...

    def quota(self, name: str) -> float:
        """Returns the applied quota of a name, such as CONCURRENCY."""
        ...

    def networks(self, subnets: Sequence[str]) -> Networks:
        """Returns the networks of the region, and those of the subnets that exist."""
        ...

    def lacks(self, service: str) -> bool:
        """Returns whether the region lacks the service (its name in boto3)."""
        ...

    def deployed_properties(self, instance_id: str) -> Mapping[str, str] | None:
        """Returns the properties of the region's instance; None if there is none."""
        ...

    def other_region(self, instance_id: str) -> str | None:
        """Returns the other region whose instance has the id and the names without a region."""
        ...

    def has_stack(self, instance_id: str) -> bool:
        """Returns whether the instance is deployed, or its deployment or destruction failed."""
        ...

    def has_image(self, registry: Registry, repository: str, tag: str) -> bool:
        """Returns whether ECR has an image with the tag."""
        ...

    def find_key(self, arn: str) -> Key | None:
        """Returns the KMS key; None if there is none."""
        ...

    def key_policy(self, arn: str) -> str:
        """Returns the policy of the KMS key, as JSON."""
        ...


def check_account(
    properties: InstanceProperties, account: Account, *, adopts: bool = False
) -> Iterator[Finding]:
    """Yields findings. A check that the credentials do not allow is a warning.

    A deployment that `adopts` imports what a destroyed instance left.
    """
    try:
        number, region = account.identity()
    except SleeperError as failure:
        yield error("credentials", str(failure))
        return
    yield from _check_identity(properties, number, region)
    checks: dict[str, Callable[[], Iterator[Finding]]] = {
        "bootstrap": lambda: _check_bootstrap(properties, account, f"aws://{number}/{region}"),
        "data": lambda: _check_data(properties, account, adopts),
        "services": lambda: _check_services(properties, account, region),
        "Lambda": lambda: _check_concurrency(properties, account),
        "Fargate": lambda: _check_fargate(properties, account),
        "EMR Serverless": lambda: _check_emr_serverless(properties, account),
        "network": lambda: _check_network(properties, account),
        "images": lambda: _check_images(properties, account, number, region),
        "encryption": lambda: check_key(
            properties, (region, number), account.find_key, account.key_policy
        ),
        "former keys": lambda: _check_kept_keys(properties, account),
    }
    for name, check in checks.items():
        try:
            yield from check()
        except SleeperError as failure:
            yield warning(name, f"not checked: {failure}")


def _check_identity(properties: InstanceProperties, number: str, region: str) -> Iterator[Finding]:
    yield passed("credentials", f"account {number}, region {region}")
    for declared, actual in ((ACCOUNT, number), (REGION, region)):
        value = properties.get(declared)
        if value and value != actual:
            yield error("credentials", f"property {declared.name} is {value}, not {actual}")


def _check_bootstrap(
    properties: InstanceProperties, account: Account, environment: str
) -> Iterator[Finding]:
    version = account.bootstrap_version()
    builds = Registry.read(properties) is None
    has_emr = builds and _EMR_SERVERLESS in _services(properties)
    least = _BOOTSTRAP_VERSION_OF_EMR if has_emr else _BOOTSTRAP_VERSION
    if version is not None and version >= least:
        yield passed("bootstrap", f"version {version}")
        return
    found = "it is missing" if version is None else f"it has version {version}"
    why = ", which lets EMR Serverless pull images" if has_emr else ""
    yield error(
        "bootstrap",
        f"{found} (expected {least} or later{why}): run `npx cdk bootstrap {environment}`",
    )


def _check_data(
    properties: InstanceProperties, account: Account, adopts: bool
) -> Iterator[Finding]:
    """Finds what a destroyed instance left, whose names a new one cannot have."""
    instance_id = properties.get(ID)
    if account.deployed_properties(instance_id) is None:
        yield from _check_names(properties, account)
        return
    if account.has_stack(instance_id):
        return
    message = f"a destroyed instance {instance_id} left its buckets and tables"
    if adopts:
        yield passed("data", f"{message}, which are adopted")
    else:
        yield error(
            "data",
            f"{message}, so their names exist: `make adopt` deploys it with them; to start empty, "
            "delete them",
        )


def _check_names(properties: InstanceProperties, account: Account) -> Iterator[Finding]:
    region = account.other_region(properties.get(ID))
    if region is not None and not properties.get(BUCKET_NAMES_REGION):
        yield warning(
            "data",
            f"region {region} has an instance {properties.get(ID)}, so its names of buckets exist: "
            f"`make deploy` adds the region to the names; set {BUCKET_NAMES_REGION.name}=true for "
            "other ways to deploy it",
        )


def _check_services(
    properties: InstanceProperties, account: Account, region: str
) -> Iterator[Finding]:
    services = _services(properties)
    missing = {name: option for name, option in services.items() if account.lacks(name)}
    for name, option in missing.items():
        yield error(
            "services",
            f"region {region} has no {name}: remove {option} from {OPTIONAL_STACKS.name}",
        )
    if not missing:
        yield passed("services", f"the region has {', '.join(services) or 'all'}")


def _check_concurrency(properties: InstanceProperties, account: Account) -> Iterator[Finding]:
    quota, reserved = account.quota(CONCURRENCY), properties.get(COMMITTER_CONCURRENCY_RESERVED)
    if reserved and quota < _UNRESERVED + reserved:
        yield error(
            "Lambda",
            f"{CONCURRENCY}: {quota:,.0f}, and AWS keeps {_UNRESERVED} unreserved (expected "
            f"{_UNRESERVED + reserved} or more): request an increase, or set "
            f"{COMMITTER_CONCURRENCY_RESERVED.name}=0",
        )
    elif quota < _USUAL_CONCURRENCY:
        yield warning(
            "Lambda",
            f"{CONCURRENCY}: {quota:,.0f} for all functions of the account: under load they are "
            f"throttled, and messages wait. Request an increase{_advice(properties, quota)}",
        )
        yield from _check_memory(properties)
    else:
        yield passed("Lambda", f"{CONCURRENCY}: {quota:,.0f}")


def _advice(properties: InstanceProperties, quota: float) -> str:
    if properties.get(LAMBDA_CONCURRENCY_QUOTA) <= quota:
        return ""
    return f", or set {LAMBDA_CONCURRENCY_QUOTA.name}={quota:.0f}"


def _check_memory(properties: InstanceProperties) -> Iterator[Finding]:
    """New accounts have less memory for a function too, which no request tells."""
    tasks = {f"{stem}.memory.mb" for stem, _, _ in task_sizes(properties)}
    for declared in INSTANCE_PROPERTIES:
        if declared.name.endswith("memory.mb") and declared.name not in tasks:
            memory = properties.get(declared)
            if memory > _NEW_ACCOUNT_MEMORY_MB:
                yield warning(
                    "Lambda",
                    f"property {declared.name} is {memory}: AWS refuses more than "
                    f"{_NEW_ACCOUNT_MEMORY_MB} MiB in new accounts",
                )


def _check_fargate(properties: InstanceProperties, account: Account) -> Iterator[Finding]:
    quota = account.quota(FARGATE_CORES)
    largest = max(units for _, units, _ in task_sizes(properties)) / _CPU_UNITS
    if quota < largest:
        yield error(
            "Fargate",
            f"{FARGATE_CORES}: {quota:,.0f}, and one task has {largest:,.0f}: request an increase",
        )
    else:
        yield passed(
            "Fargate", f"{FARGATE_CORES}: {quota:,.0f}, so {quota // largest:,.0f} large tasks"
        )


def _check_emr_serverless(properties: InstanceProperties, account: Account) -> Iterator[Finding]:
    if _EMR_SERVERLESS not in _services(properties):
        return
    quota, cores = account.quota(EMR_SERVERLESS_CORES), properties.get(SERVERLESS_CORES_MAX)
    if quota < cores:
        yield warning(
            "EMR Serverless",
            f"{EMR_SERVERLESS_CORES}: {quota:,.0f}, and {SERVERLESS_CORES_MAX.name} is {cores}: "
            "jobs beyond the quota fail or wait",
        )
    else:
        yield passed("EMR Serverless", f"{EMR_SERVERLESS_CORES}: {quota:,.0f}")


def _check_network(properties: InstanceProperties, account: Account) -> Iterator[Finding]:
    vpc, subnets = properties.get(VPC), properties.get(SUBNETS)
    networks = account.networks(subnets)
    if vpc:
        yield from _check_given(vpc, subnets, networks)
        return
    current = account.deployed_properties(properties.get(ID))
    if current is not None:
        try:
            has_endpoints = properties.get(NETWORK_ENDPOINTS)
            check_kept_network(current, properties.values, has_endpoints=has_endpoints)
        except InvalidRequestError as refusal:
            yield error("network", str(refusal))
        return
    quota = account.quota(VPCS)
    if len(networks.addresses) >= quota:
        yield error(
            "network",
            f"{VPCS}: {len(networks.addresses)} of {quota:,.0f}: request an increase, or set "
            f"{VPC.name} and {SUBNETS.name}",
        )
    made = ipaddress.ip_network(MADE_NETWORK)
    for name, ranges in networks.addresses.items():
        if any(made.overlaps(ipaddress.ip_network(each)) for each in ranges):
            yield warning(
                "network",
                f"the addresses of {name} overlap {MADE_NETWORK}, those of the network that the "
                "deployment makes: the two cannot be peered",
            )


def _check_given(vpc: str, subnets: Sequence[str], networks: Networks) -> Iterator[Finding]:
    faults = 0
    for subnet in subnets:
        actual = networks.subnets.get(subnet)
        if actual != vpc:
            faults += 1
            owner = f"belongs to {actual}" if actual else "does not exist"
            yield error("network", f"subnet {subnet} {owner} (expected a subnet of {vpc})")
        elif subnet not in networks.with_route:
            faults += 1
            yield warning(
                "network",
                f"subnet {subnet} has no default route: tasks, clusters and EKS reach AWS only "
                "if the network has a NAT gateway or endpoints of each service",
            )
    if not faults:
        yield passed("network", f"{len(subnets)} subnets of {vpc} have a default route")


def _check_images(
    properties: InstanceProperties, account: Account, number: str, region: str
) -> Iterator[Finding]:
    registry = Registry.read(properties)
    if registry is None:
        return
    if registry.region != region:
        yield error(
            "images",
            f"they are published in {registry.region}, and Lambda and EMR Serverless accept images "
            f"only from the region of the instance: publish them in {region} with `make images`",
        )
        return
    if registry.account != number:
        yield warning(
            "images",
            f"they are published in account {registry.account}: the policies of its repositories "
            f"must allow account {number}, its functions and its applications to pull them",
        )
    release = release_tag(properties)
    images = {(registry.repository(i.name), i.tag(release)) for i in _images(properties)}
    for repository, tag in sorted(images):
        if account.has_image(registry, repository, tag):
            yield passed("images", f"{repository}:{tag} is published")
        else:
            yield error("images", f"{repository}:{tag} is missing: publish it with `make images`")


def _images(properties: InstanceProperties) -> Iterator[NamedImage]:
    yield NamedImage("function", properties.get(LAMBDA_CPU_ARCHITECTURE))
    for processor in (INGEST_CPU_ARCHITECTURE, COMPACTION_CPU_ARCHITECTURE):
        yield NamedImage("worker", properties.get(processor))
    for stack in _chosen_stacks(properties):
        if stack.image is not None:
            yield load(stack.image)(properties)


def _check_kept_keys(properties: InstanceProperties, account: Account) -> Iterator[Finding]:
    current = account.deployed_properties(properties.get(ID))
    yield from check_kept_keys(properties, current or {})


def _services(properties: InstanceProperties) -> dict[str, str]:
    """Returns the services that not every region has, with the chosen part that needs each."""
    stacks = _chosen_stacks(properties)
    return {name: str(stack.option) for stack in stacks for name in stack.services}


def _chosen_stacks(properties: InstanceProperties) -> list[Stack]:
    chosen = properties.get(OPTIONAL_STACKS)
    return [each for system in systems() for each in system.stacks if each.option in chosen]
