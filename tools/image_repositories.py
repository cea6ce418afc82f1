"""Repositories of ECR for published images.

The tags of a repository are immutable: CloudFormation and running tasks would not notice that a
tag names another image. Lambda and EMR Serverless pull images themselves, so the repository's
policy allows them to, for functions and applications of its account.
"""

import json
from collections.abc import Sequence
from typing import Any

from sleeper.properties.images import Registry

_PULL = ("ecr:BatchGetImage", "ecr:GetDownloadUrlForLayer")
# EMR Serverless also looks up the digest.
_PULLERS = {
    "lambda": ("function:*", _PULL),
    "emr-serverless": ("/applications/*", (*_PULL, "ecr:DescribeImages")),
}


def make_repositories(client: Any, registry: Registry, names: Sequence[str]) -> list[str]:
    """Creates those that are missing, and returns their names. Others keep their settings."""
    created = []
    policy = json.dumps(_make_policy(client.meta.partition, registry))
    for name in names:
        try:
            client.create_repository(
                registryId=registry.account,
                repositoryName=name,
                imageTagMutability="IMMUTABLE",
                imageScanningConfiguration={"scanOnPush": True},
            )
        except client.exceptions.RepositoryAlreadyExistsException:
            continue
        client.set_repository_policy(
            registryId=registry.account, repositoryName=name, policyText=policy
        )
        created.append(name)
    return created


def _make_policy(partition: str, registry: Registry) -> dict[str, object]:
    return {
        "Version": "2012-10-17",
        "Statement": [
            {
                "Effect": "Allow",
                "Principal": {"Service": f"{service}.amazonaws.com"},
                "Action": list(actions),
                "Condition": {
                    "StringLike": {
                        "aws:sourceArn": f"arn:{partition}:{service}:{registry.region}:"
                        f"{registry.account}:{resource}"
                    }
                },
            }
            for service, (resource, actions) in _PULLERS.items()
        ],
    }
