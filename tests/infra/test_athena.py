"""The stack for Athena, which is deployed if the properties name it."""

from tests.infra.synthesis import Resource, Synthesis, as_list

SPILL = "sleeper-lake-1-athena-spill-"


def resources(with_athena: Synthesis, kind: str) -> dict[str, Resource]:
    template = next(t for name, t in with_athena.templates.items() if name.endswith("Athena"))
    return {
        logical_id: resource["Properties"]
        for logical_id, resource in template["Resources"].items()
        if resource["Type"] == kind
    }


def function(with_athena: Synthesis, name: str) -> tuple[str, Resource]:
    found = resources(with_athena, "AWS::Lambda::Function")
    (made,) = (each for each in found.items() if each[1]["FunctionName"].endswith(name))
    return made


def test_the_catalog_names_the_functions(with_athena: Synthesis) -> None:
    (catalog,) = resources(with_athena, "AWS::Athena::DataCatalog").values()
    assert catalog["Name"] == "sleeper_lake_1"
    assert catalog["Type"] == "LAMBDA"
    for role, name in (
        ("metadata-function", "athena-metadata"),
        ("record-function", "athena-records"),
    ):
        logical_id, _ = function(with_athena, name)
        assert catalog["Parameters"][role] == {"Fn::GetAtt": [logical_id, "Arn"]}


def test_the_functions_are_one_image_with_a_handler_each(with_athena: Synthesis) -> None:
    functions = [function(with_athena, name)[1] for name in ("athena-metadata", "athena-records")]
    assert functions[0]["Code"] == functions[1]["Code"]
    commands = [each["ImageConfig"]["Command"] for each in functions]
    assert commands == [
        ["lambdas.athena_metadata.handler.handler"],
        ["lambdas.athena_records.handler.handler"],
    ]
    assert [each["MemorySize"] for each in functions] == [3008, 3008]


def test_spilled_objects_expire(with_athena: Synthesis) -> None:
    (bucket,) = resources(with_athena, "AWS::S3::Bucket").values()
    days = [rule.get("ExpirationInDays") for rule in bucket["LifecycleConfiguration"]["Rules"]]
    assert days == [None, 3]


def test_only_reading_records_writes_to_the_spill_bucket(with_athena: Synthesis) -> None:
    writing = [
        (where, str(resource))
        for where, statement in with_athena.statements()
        if statement["Effect"] == "Allow" and "s3:PutObject" in as_list(statement["Action"])
        for resource in as_list(statement["Resource"])
        if SPILL in str(resource)
    ]
    ((where, resource),) = writing
    assert "Athena/RecordsRole" in where
    assert resource.endswith("/athena/*']]}")
    assert not any(
        "s3:DeleteObject" in as_list(statement["Action"])
        for where, statement in with_athena.statements()
        if "Athena/" in where
    )


def test_the_bucket_and_the_catalog_are_properties(with_athena: Synthesis) -> None:
    (written,) = with_athena.properties("Custom::SleeperProperties")
    assert written["Deployed"]["sleeper.athena.catalog"] == "sleeper_lake_1"
    assert SPILL in str(written["Deployed"]["sleeper.athena.spill.bucket"])
