"""A bucket of the instance."""

import aws_cdk as cdk
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_s3 as s3
from constructs import Construct

from sleeper.properties.deployed import DeployedBucket
from stacks.constructs.acknowledged import acknowledge
from stacks.constructs.key import find_key
from stacks.deployment import INSTANCE_TAG, Deployment

_UNFINISHED_UPLOAD = cdk.Duration.days(7)
_EMPTYING = cdk.Duration.minutes(16)
_OLD_VERSION = cdk.Duration.days(7)


def make_bucket(
    scope: Construct,
    construct_id: str,
    deployment: Deployment,
    bucket: DeployedBucket,
    *,
    emptier: lambda_.IFunction,
    versioned: bool | None = None,
    expires_days: int | None = None,
    expires_prefix: str | None = None,
) -> s3.Bucket:
    """Returns a private, encrypted bucket that requires TLS.

    Unless it is lasting, the bucket is emptied by the function and deleted with the stack. A
    versioned bucket, by default a lasting one, keeps deleted objects for a week. Objects, or only
    those whose keys start with `expires_prefix`, are deleted after `expires_days`.
    """
    versioned = bucket.lasting if versioned is None else versioned
    key = find_key(scope, construct_id, deployment)
    removal_policy = deployment.removal_policy if bucket.lasting else cdk.RemovalPolicy.DESTROY
    made = s3.Bucket(
        scope,
        construct_id,
        bucket_name=deployment.bucket_name(bucket),
        encryption=s3.BucketEncryption.KMS if key else s3.BucketEncryption.S3_MANAGED,
        encryption_key=key,
        # Otherwise each object costs a request to KMS.
        bucket_key_enabled=True if key else None,
        block_public_access=s3.BlockPublicAccess.BLOCK_ALL,
        object_ownership=s3.ObjectOwnership.BUCKET_OWNER_ENFORCED,
        enforce_ssl=True,
        minimum_tls_version=1.2,
        versioned=versioned,
        lifecycle_rules=_rules(versioned, expires_days, expires_prefix),
        removal_policy=removal_policy,
    )
    if bucket.lasting:
        cdk.Tags.of(made).add(INSTANCE_TAG, deployment.id)
    if removal_policy is cdk.RemovalPolicy.DESTROY:
        cdk.CustomResource(
            made,
            "Emptied",
            resource_type="Custom::SleeperEmptiedBucket",
            service_token=emptier.function_arn,
            service_timeout=_EMPTYING,
            properties={"Bucket": made.bucket_name},
        )
    acknowledge(made, "S1", "access logs would cost more than the rest of the bucket")
    deployment.record(bucket.place, deployment.bucket_name(bucket), made)
    return made


def _rules(versioned: bool, days: int | None, prefix: str | None) -> list[s3.LifecycleRule]:
    rule = s3.LifecycleRule(
        abort_incomplete_multipart_upload_after=_UNFINISHED_UPLOAD,
        noncurrent_version_expiration=_OLD_VERSION if versioned else None,
        expired_object_delete_marker=True if versioned else None,
    )
    if not days:
        return [rule]
    expiry = cdk.Duration.days(days)
    noncurrent = expiry if versioned else None
    expired = s3.LifecycleRule(
        prefix=prefix, expiration=expiry, noncurrent_version_expiration=noncurrent
    )
    return [rule, expired]
