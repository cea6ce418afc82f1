"""Names with the region: what is global, so that two regions have an instance of one id."""

import json
import re
from pathlib import Path

import pytest

from sleeper.properties.instance import OPTIONAL_STACKS
from tests.infra.synthesis import Synthesis, synthesise
from tools.adopt import find_retained

ID, ACCOUNT, REGION = "twenty-letters-and-a", "123456789012", "ap-southeast-2"
PARTS = (
    "QueryStack,BulkExportStack,StashStack,AthenaStack,EmrServerlessBulkImportStack,DashboardStack"
)
LENGTH_MAX = 63
"""Of the names of buckets in S3."""


@pytest.fixture(scope="module")
def with_region(tmp_path_factory: pytest.TempPathFactory) -> Synthesis:
    folder = tmp_path_factory.mktemp("names")
    file = folder / "instance.properties"
    file.write_text(f"sleeper.id={ID}\n{OPTIONAL_STACKS.name}={PARTS}\n")
    names = {"account": ACCOUNT, "region": REGION, "bucketNamesRegion": "true"}
    return synthesise(folder / "out", file, **names)


def test_names_of_buckets_have_the_region_and_fit(with_region: Synthesis) -> None:
    names = [each["BucketName"] for each in with_region.properties("AWS::S3::Bucket")]
    assert len(set(names)) == 7
    assert all(name.endswith(f"-{ACCOUNT}-{REGION}") for name in names)
    assert max(map(len, names)) == LENGTH_MAX


def test_policies_name_the_buckets_that_exist(with_region: Synthesis) -> None:
    names = {each["BucketName"] for each in with_region.properties("AWS::S3::Bucket")}
    statements = json.dumps([statement for _, statement in with_region.statements()])
    arns = set(re.findall(rf":s3:::(sleeper-{ID}-[a-z0-9-]+)", statements))
    assert arns == names


def test_the_dashboard_has_the_region(with_region: Synthesis) -> None:
    (dashboard,) = with_region.properties("AWS::CloudWatch::Dashboard")
    assert dashboard["DashboardName"] == f"sleeper-{ID}-dashboard-{REGION}"


def test_an_adopted_instance_keeps_the_region(with_region: Synthesis) -> None:
    """CloudFormation imports what has a text as its name."""
    retained = find_retained(Path(with_region.folder), ID)
    assert all(isinstance(each.name, str) for each in retained)
    assert sum(each.name.endswith(REGION) for each in retained) == 3
