"""The stack for Athena, which is deployed if the properties name it."""

from tests.infra.synthesis import Resource, Synthesis, as_list

SPILL = "sleeper-lake-1-athena-spill-"


def resources(athena_stack: Synthesis, kind: str) -> dict[str, Resource]:
    template = next(t for name, t in athena_stack.templates.items() if name.endswith("Athena"))
    return {
        logical_id: resource["Properties"]
        for logical_id, resource in template["Resources"].items()
        if resource["Type"] == kind
    }


def function(athena_stack: Synthesis, name: str) -> tuple[str, Resource]:
    result = resources(athena_stack, "AWS::Lambda::Function")
    (made,) = (item for item in result.items() if item[1]["FunctionName"].endswith(name))
    return made


def test_the_catalog_names_the_functions(athena_stack: Synthesis) -> None:
    (catalog,) = resources(athena_stack, "AWS::Athena::DataCatalog").values()
    assert catalog["Name"] == "sleeper_lake_1"
    assert catalog["Type"] == "LAMBDA"
    for role, name in (
        ("metadata-function", "athena-metadata"),
        ("record-function", "athena-records"),
    ):
        logical_id, _ = function(athena_stack, name)
        assert catalog["Parameters"][role] == {"Fn::GetAtt": [logical_id, "Arn"]}


def test_the_functions_are_one_image_with_a_handler_each(athena_stack: Synthesis) -> None:
    functions = [function(athena_stack, name)[1] for name in ("athena-metadata", "athena-records")]
    assert functions[0]["Code"] == functions[1]["Code"]
    commands = [item["ImageConfig"]["Command"] for item in functions]
    assert commands == [
        ["lambdas.athena_metadata.handler.handler"],
        ["lambdas.athena_records.handler.handler"],
    ]
    assert [item["MemorySize"] for item in functions] == [2048, 2048]


def test_spilled_objects_expire(athena_stack: Synthesis) -> None:
    (bucket,) = resources(athena_stack, "AWS::S3::Bucket").values()
    days = [rule.get("ExpirationInDays") for rule in bucket["LifecycleConfiguration"]["Rules"]]
    assert days == [None, 3]


def test_only_reading_records_writes_to_the_spill_bucket(athena_stack: Synthesis) -> None:
    writing = [
        (where, str(resource))
        for where, statement in athena_stack.statements()
        if statement["Effect"] == "Allow" and "s3:PutObject" in as_list(statement["Action"])
        for resource in as_list(statement["Resource"])
        if SPILL in str(resource)
    ]
    ((where, resource),) = writing
    assert "Athena/RecordsRole" in where
    assert resource.endswith("/athena/*']]}")
    assert not any(
        "s3:DeleteObject" in as_list(statement["Action"])
        for where, statement in athena_stack.statements()
        if "Athena/" in where
    )


def test_the_bucket_and_the_catalog_are_properties(athena_stack: Synthesis) -> None:
    (resource,) = athena_stack.properties("Custom::SleeperProperties")
    assert resource["Deployed"]["sleeper.athena.catalog"] == "sleeper_lake_1"
    assert SPILL in str(resource["Deployed"]["sleeper.athena.spill.bucket"])
