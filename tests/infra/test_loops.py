"""Functions whose own messages can start them again.

Lambda stops a chain of requests in which one function runs about 16 times, unless the function's
`RecursiveLoop` is `Allow`. It follows requests through SQS, SNS, S3 and Lambda itself.
"""

import json
import re
from typing import Any

from tests.infra.synthesis import Resource, Synthesis, as_list

FUNCTION = "AWS::Lambda::Function"
# A drain sends the message of its bucket again while the bucket has exports.
LOOPS = {"drain-exports"}
# The queue's name, at the end of its ARN.
QUEUE_NAME = re.compile(r":sleeper-[Ee]xample-([a-z.-]+)\"")


def test_functions_in_a_loop_of_queues_may_run_without_end(
    example: Synthesis, with_dashboard: Synthesis, platforms: Synthesis
) -> None:
    every: set[str] = set()
    for synthesis in (example, with_dashboard, platforms):
        queues = queues_by_sender(synthesis)
        receivers = functions_by_queue(synthesis)
        following = {
            sender: {receivers[name] for name in names & receivers.keys()}
            for sender, names in queues.items()
        }
        loops = {sender for sender in following if sender in reachable(following, sender)}
        assert loops == {
            short_name(function)
            for function in synthesis.properties(FUNCTION)
            if function.get("RecursiveLoop") == "Allow"
        }
        every |= loops
    assert every == LOOPS


def test_no_bucket_or_topic_starts_a_function(
    example: Synthesis, with_dashboard: Synthesis, platforms: Synthesis
) -> None:
    """Otherwise the loops of the other test are not all."""
    for synthesis in (example, with_dashboard, platforms):
        for bucket in synthesis.properties("AWS::S3::Bucket"):
            assert "NotificationConfiguration" not in bucket
        protocols = [s["Protocol"] for s in synthesis.properties("AWS::SNS::Subscription")]
        assert "lambda" not in protocols


def queues_by_sender(synthesis: Synthesis) -> dict[str, set[str]]:
    """Returns the names of the queues to which each function may send."""
    result: dict[str, set[str]] = {}
    for template in synthesis.templates.values():
        resources = template["Resources"]
        for function in functions(template).values():
            (role,) = function["Role"]["Fn::GetAtt"][:1]
            sent = result.setdefault(short_name(function), set())
            for policy in resources.values():
                if policy["Type"] == "AWS::IAM::Policy" and {"Ref": role} in roles(policy):
                    sent |= sent_queues(policy["Properties"]["PolicyDocument"])
    return result


def roles(policy: Resource) -> list[Any]:
    return list(policy["Properties"]["Roles"])


def sent_queues(document: Resource) -> set[str]:
    return {
        name
        for statement in document["Statement"]
        if statement["Effect"] == "Allow" and "sqs:SendMessage" in as_list(statement["Action"])
        for name in QUEUE_NAME.findall(json.dumps(statement["Resource"]))
    }


def functions_by_queue(synthesis: Synthesis) -> dict[str, str]:
    """Returns the function that each queue starts."""
    result = {}
    for template in synthesis.templates.values():
        resources = template["Resources"]
        for mapping in resources.values():
            if mapping["Type"] == "AWS::Lambda::EventSourceMapping":
                source = mapping["Properties"]["EventSourceArn"]
                queue = resources.get(source.get("Fn::GetAtt", [""])[0])
                if queue is not None:
                    name = queue["Properties"]["QueueName"].split("-", 2)[2]
                    function = functions(template)[mapping["Properties"]["FunctionName"]["Ref"]]
                    result[name] = short_name(function)
    return result


def functions(template: Resource) -> dict[str, Resource]:
    return {
        logical_id: resource["Properties"]
        for logical_id, resource in template["Resources"].items()
        # Functions of custom resources have no names, and receive no messages.
        if resource["Type"] == FUNCTION and "FunctionName" in resource["Properties"]
    }


def short_name(function: Resource) -> str:
    return str(function["FunctionName"]).split("-", 2)[2]


def reachable(following: dict[str, set[str]], start: str) -> set[str]:
    """Returns the functions that messages of the function can start, however indirectly."""
    reached: set[str] = set()
    waiting = [start]
    while waiting:
        fresh = following.get(waiting.pop(), set()) - reached
        reached |= fresh
        waiting += fresh
    return reached
