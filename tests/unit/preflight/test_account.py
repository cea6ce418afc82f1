"""Checks of the account and the region, with an account that a test describes."""

import json
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import pytest

from sleeper import __version__
from sleeper.errors import InvalidRequestError, UnavailableError
from sleeper.preflight.account import (
    CONCURRENCY,
    EMR_SERVERLESS_CORES,
    FARGATE_CORES,
    VPCS,
    Networks,
    check_account,
)
from sleeper.preflight.finding import Level
from sleeper.preflight.key import Key
from sleeper.properties.images import Registry
from sleeper.properties.values import instance_properties
from tools.bucket_names import choose_names

_KEYS = "arn:aws:kms:eu-west-2:123456789012:key/"
KEY, OTHER_KEY = f"{_KEYS}1", f"{_KEYS}2"
USABLE = Key("Enabled", "SYMMETRIC_DEFAULT", "ENCRYPT_DECRYPT", "CUSTOMER")
SERVICES = ("logs.eu-west-2.amazonaws.com", "cloudwatch.amazonaws.com", "fargate.amazonaws.com")
EMR = "EmrServerlessBulkImportStack"
NAMES = "sleeper.bucket.names.region"


@dataclass
class DescribedAccount:
    """Without changes, an account to which everything can be deployed."""

    bootstrap: int | None = 33
    quotas: dict[str, float] = field(
        default_factory=lambda: {
            CONCURRENCY: 1000,
            FARGATE_CORES: 100,
            EMR_SERVERLESS_CORES: 1000,
            VPCS: 5,
        }
    )
    addresses: dict[str, list[str]] = field(default_factory=lambda: {"vpc-1": ["172.31.0.0/16"]})
    subnets: dict[str, str] = field(default_factory=dict)
    with_route: frozenset[str] = frozenset()
    missing: set[str] = field(default_factory=set)
    deployed: dict[str, dict[str, str]] = field(default_factory=dict)
    elsewhere: dict[str, str] = field(default_factory=dict)
    keys: dict[str, Key] = field(default_factory=lambda: {KEY: USABLE})
    services: tuple[str, ...] = SERVICES
    denied: set[str] = field(default_factory=set)
    stacks: set[str] = field(default_factory=lambda: {"here", "a"})
    images: set[str] = field(default_factory=set)

    def identity(self) -> tuple[str, str]:
        self._refuse("identity")
        return "123456789012", "eu-west-2"

    def bootstrap_version(self) -> int | None:
        self._refuse("bootstrap")
        return self.bootstrap

    def quota(self, name: str) -> float:
        self._refuse(name)
        return self.quotas[name]

    def networks(self, subnets: Sequence[str]) -> Networks:
        return Networks(self.addresses, self.subnets, self.with_route)

    def lacks(self, service: str) -> bool:
        return service in self.missing

    def deployed_properties(self, instance_id: str) -> dict[str, str] | None:
        return self.deployed.get(instance_id)

    def other_region(self, instance_id: str) -> str | None:
        return self.elsewhere.get(instance_id)

    def has_stack(self, instance_id: str) -> bool:
        return instance_id in self.stacks

    def has_image(self, registry: Registry, repository: str, tag: str) -> bool:
        self._refuse("images")
        return f"{registry.account}/{repository}:{tag}" in self.images

    def find_key(self, arn: str) -> Key | None:
        return self.keys.get(arn)

    def key_policy(self, arn: str) -> str:
        self._refuse("the policy")
        effect = {"Effect": "Deny", "Principal": "*"}
        one, *more = ({"Effect": "Allow", "Principal": {"Service": each}} for each in self.services)
        return json.dumps({"Statement": [effect, one, *more]})

    def _refuse(self, name: str) -> None:
        if name in self.denied:
            raise InvalidRequestError(f"no permission for {name}")


def problems(described: DescribedAccount, /, **values: str) -> list[tuple[Level, str]]:
    properties = instance_properties(
        {"sleeper.id": "here"} | {f"sleeper.{k.replace('_', '.')}": v for k, v in values.items()}
    )
    findings = check_account(properties, described)
    return [(each.level, each.message) for each in findings if each.level is not Level.OK]


def test_a_usual_account_has_no_problem() -> None:
    assert problems(DescribedAccount()) == []


@pytest.mark.parametrize(
    ("account", "level", "message"),
    [
        (DescribedAccount(denied={"identity"}), Level.ERROR, "no permission for identity"),
        (
            DescribedAccount(bootstrap=None),
            Level.ERROR,
            "missing (expected 27 or later, which lets EMR Serverless pull images): run "
            "`npx cdk bootstrap aws://123456789012/eu-west-2`",
        ),
        (DescribedAccount(bootstrap=26), Level.ERROR, "it has version 26"),
        (DescribedAccount(denied={"bootstrap"}), Level.WARNING, "not checked: no permission"),
        (
            DescribedAccount(missing={"emr-serverless"}),
            Level.ERROR,
            f"region eu-west-2 has no emr-serverless: remove {EMR} from sleeper.optional.stacks",
        ),
        (
            DescribedAccount(addresses={"vpc-9": ["10.1.0.0/16", "10.0.128.0/20"]}),
            Level.WARNING,
            "the addresses of vpc-9 overlap 10.0.0.0/16",
        ),
        (
            DescribedAccount(addresses={f"vpc-{i}": ["172.16.0.0/16"] for i in range(5)}),
            Level.ERROR,
            "VPCs of the region: 5 of 5",
        ),
    ],
)
def test_each_problem_is_reported_alone(
    account: DescribedAccount, level: Level, message: str
) -> None:
    ((actual, text),) = problems(account)
    assert actual is level
    assert message in text


def test_a_deployment_over_a_destroyed_instance_is_refused_unless_it_adopts() -> None:
    deployed = {"here": {"sleeper.id": "here", "sleeper.vpc": "vpc-1"}}
    destroyed = DescribedAccount(deployed=deployed, stacks=set())
    given = {"vpc": "vpc-1", "subnets": "subnet-1"}
    networks = {"subnets": {"subnet-1": "vpc-1"}, "with_route": frozenset({"subnet-1"})}
    destroyed = replace(destroyed, **networks)
    ((level, text),) = problems(destroyed, **given)
    assert level is Level.ERROR
    assert "a destroyed instance here left its buckets and tables" in text
    assert "`make adopt`" in text
    properties = instance_properties({"sleeper.id": "here"})
    found = {each.check: each for each in check_account(properties, destroyed, adopts=True)}
    assert found["data"].level is Level.OK
    assert problems(replace(destroyed, stacks={"here"}), **given) == []


def test_names_of_an_instance_in_another_region() -> None:
    account = DescribedAccount(elsewhere={"here": "us-east-1"})
    ((level, text),) = problems(account)
    assert level is Level.WARNING
    assert "region us-east-1 has an instance here" in text
    assert problems(account, bucket_names_region="true") == []


@pytest.mark.parametrize(
    ("account", "values", "argument"),
    [
        (DescribedAccount(), {}, ""),
        (DescribedAccount(deployed={"here": {}}, elsewhere={"here": "us-east-1"}), {}, ""),
        (DescribedAccount(elsewhere={"here": "us-east-1"}), {}, "-c bucketNamesRegion=true"),
        (DescribedAccount(elsewhere={"here": "us-east-1"}), {NAMES: "false"}, ""),
        (DescribedAccount(deployed={"here": {NAMES: "true"}}), {}, "-c bucketNamesRegion=true"),
    ],
)
def test_a_deployment_chooses_names_that_exist_or_are_free(
    account: DescribedAccount, values: dict[str, str], argument: str
) -> None:
    properties = instance_properties({"sleeper.id": "here", **values})
    assert choose_names(properties, account) == argument


def test_a_part_that_is_not_deployed_is_not_checked() -> None:
    account = DescribedAccount(bootstrap=20, missing={"emr-serverless"})
    account.quotas[EMR_SERVERLESS_CORES] = 16
    assert problems(account, optional_stacks="IngestStack") == []
    assert len(problems(account, optional_stacks=EMR)) == 3


@pytest.mark.parametrize(("concurrency", "reserved"), [(10, "1"), (109, "10"), (100, "1")])
def test_a_reservation_beyond_the_quota_is_refused(concurrency: int, reserved: str) -> None:
    account = DescribedAccount()
    account.quotas[CONCURRENCY] = concurrency
    ((level, text),) = problems(account, statestore_committer_concurrency_reserved=reserved)
    assert level is Level.ERROR
    assert f"expected {100 + int(reserved)} or more" in text


def test_a_new_account_warns_of_throttles_and_memory() -> None:
    account = DescribedAccount()
    account.quotas[CONCURRENCY] = 10
    found = problems(account, lambda_memory_mb="3009")
    assert {level for level, _ in found} == {Level.WARNING}
    texts = " ".join(text for _, text in found)
    assert "messages wait" in texts
    assert "set sleeper.lambda.concurrency.quota=10" in texts
    advised = problems(account, lambda_concurrency_quota="10")
    assert "sleeper.lambda.concurrency.quota" not in " ".join(text for _, text in advised)
    assert "sleeper.lambda.memory.mb is 3009" in texts


def test_quotas_of_processors() -> None:
    account = DescribedAccount()
    account.quotas |= {FARGATE_CORES: 2, EMR_SERVERLESS_CORES: 16}
    found = dict(problems(account))
    assert "one task has 4" in found[Level.ERROR]
    assert "sleeper.bulk.import.emr.serverless.max.vcpus is 400" in found[Level.WARNING]


def test_subnets_of_a_given_network() -> None:
    account = DescribedAccount(
        subnets={"s-1": "vpc-1", "s-2": "vpc-2", "s-4": "vpc-1"}, with_route=frozenset({"s-4"})
    )
    found = problems(account, vpc="vpc-1", subnets="s-1,s-2,s-3,s-4")
    assert [level for level, _ in found] == [Level.WARNING, Level.ERROR, Level.ERROR]
    assert "s-1 has no default route" in found[0][1]
    assert "s-2 belongs to vpc-2" in found[1][1]
    assert "s-3 does not exist" in found[2][1]


def test_another_account_or_region_is_refused() -> None:
    found = problems(DescribedAccount(), account="210987654321", region="eu-west-1")
    assert [text for _, text in found] == [
        "property sleeper.account is 210987654321, not 123456789012",
        "property sleeper.region is eu-west-1, not eu-west-2",
    ]


def test_a_check_that_fails_does_not_hide_others() -> None:
    class Broken(DescribedAccount):
        def lacks(self, service: str) -> bool:
            raise UnavailableError("no answer")

    account = Broken(bootstrap=None)
    assert [level for level, _ in problems(account)] == [Level.ERROR, Level.WARNING]


def test_a_new_default_of_the_network_of_a_deployed_instance_is_an_error() -> None:
    """The deployment would refuse it too, after some minutes."""
    account = DescribedAccount(deployed={"a": {"sleeper.network.vpc.created": "vpc-2"}})

    def network(**values: str) -> list[Level]:
        names = {f"sleeper.{name.replace('_', '.')}": value for name, value in values.items()}
        found = check_account(instance_properties({"sleeper.id": "a", **names}), account)
        return [each.level for each in found if each.check == "network"]

    assert network() == [Level.ERROR]
    assert network(network_interface_endpoints="true") == []
    assert network(network_interface_endpoints="false") == []
    assert network(id="b") == []


def registry(account: str = "123456789012", region: str = "eu-west-2") -> str:
    return f"{account}.dkr.ecr.{region}.amazonaws.com/team/sleeper"


def test_published_images_exist_for_the_processors_and_platforms() -> None:
    tags = ("function:7-arm64", "worker:7-amd64", "bulk-import:7-emr-serverless-emr-7.9.0-arm64")
    images = {f"123456789012/team/sleeper/{each}" for each in tags}
    # The old bootstrap's repository is not used.
    described = DescribedAccount(images=images, bootstrap=6)
    chosen = {"images_registry": registry(), "images_tag": "7"}
    tasks = ("ingest_task_cpu_architecture", "compaction_task_cpu_architecture")
    on_x86 = dict.fromkeys(tasks, "X86_64")
    assert problems(described, **chosen, **on_x86) == []
    ((level, message),) = problems(described, **chosen)
    assert level is Level.ERROR
    assert message == "team/sleeper/worker:7-arm64 is missing: publish it with `make images`"
    release = {"bulk_import_emr_release_label": "emr-7.8.0"}
    ((_, message),) = problems(described, **chosen, **on_x86, **release)
    assert message.startswith("team/sleeper/bulk-import:7-emr-serverless-emr-7.8.0-arm64 is miss")
    described.denied.add("images")
    ((level, message),) = problems(described, **chosen)
    assert (level, message) == (Level.WARNING, "not checked: no permission for images")


def test_published_images_of_another_region_or_account() -> None:
    ((level, message),) = problems(DescribedAccount(), images_registry=registry(region="us-east-1"))
    assert level is Level.ERROR
    assert message.startswith("they are published in us-east-1")
    images = (f"function:{__version__}", f"worker:{__version__}")
    spark = f"bulk-import:{__version__}-emr-serverless-emr-7.9.0"
    tags = [f"{each}-arm64" for each in (*images, spark)]
    others = DescribedAccount(images={f"210987654321/team/sleeper/{tag}" for tag in tags})
    ((level, message),) = problems(others, images_registry=registry(account="210987654321"))
    assert level is Level.WARNING
    assert message.startswith("they are published in account 210987654321")


def test_a_key_that_services_can_use_has_no_problem() -> None:
    assert problems(DescribedAccount(), kms_key_arn=KEY) == []


@pytest.mark.parametrize(
    ("key", "message"),
    [
        (None, f"key {KEY} does not exist"),
        (replace(USABLE, state="PendingDeletion"), "is PendingDeletion, SYMMETRIC_DEFAULT"),
        (replace(USABLE, spec="RSA_4096"), "is Enabled, RSA_4096"),
        (replace(USABLE, usage="SIGN_VERIFY"), "expected Enabled, SYMMETRIC_DEFAULT"),
        (replace(USABLE, manager="AWS"), "managed by AWS (expected"),
    ],
)
def test_a_key_that_services_cannot_use_is_an_error(key: Key | None, message: str) -> None:
    account = DescribedAccount(keys={KEY: key} if key else {})
    ((level, text),) = problems(account, kms_key_arn=KEY)
    assert level is Level.ERROR
    assert message in text


@pytest.mark.parametrize(
    "arn", [KEY.replace("eu-west-2", "us-east-1"), KEY.replace("123456789012", "210987654321")]
)
def test_a_key_of_another_place_is_an_error(arn: str) -> None:
    ((level, text),) = problems(DescribedAccount(keys={arn: USABLE}), kms_key_arn=arn)
    assert level is Level.ERROR
    assert "expected one of account 123456789012, region eu-west-2" in text


def test_a_service_without_a_statement_in_the_policy_of_the_key_is_a_warning() -> None:
    found = problems(DescribedAccount(services=SERVICES[:1]), kms_key_arn=KEY)
    assert {level for level, _ in found} == {Level.WARNING}
    assert [text.split(" allow ")[1].split(",")[0] for _, text in found] == [*SERVICES[1:]]
    ((level, text),) = problems(DescribedAccount(denied={"the policy"}), kms_key_arn=KEY)
    assert (level, text) == (Level.WARNING, "not checked: no permission for the policy")


def test_a_former_key_must_stay_in_the_properties() -> None:
    account = DescribedAccount(
        deployed={"here": {"sleeper.kms.key.arn": OTHER_KEY, "sleeper.kms.former.key.arns": KEY}}
    )
    assert [level for level, _ in problems(account)] == [Level.ERROR, Level.ERROR]
    assert problems(account, kms_key_arn=KEY, kms_former_key_arns=OTHER_KEY) == []
    assert problems(account, kms_former_key_arns=f"{OTHER_KEY},{KEY}") == []
    ((_, text),) = problems(account, kms_key_arn=KEY)
    assert text == f"older objects are encrypted with key {OTHER_KEY}: add it to " + (
        "sleeper.kms.former.key.arns"
    )
