"""Bulk import on EMR Serverless, which costs nothing while no job runs."""

import aws_cdk as cdk
from aws_cdk import aws_emrserverless as emrserverless
from aws_cdk import aws_iam as iam
from constructs import Construct

from sleeper.bulk_import.images import emr_image
from sleeper.jobs.spark_platform import PlatformName
from sleeper.properties.deployed import SERVERLESS_APPLICATION, SERVERLESS_ROLE
from sleeper.properties.deployment import (
    ARCHITECTURE,
    EMR_RELEASE,
    SERVERLESS_CORES_MAX,
    SERVERLESS_STOP_MINUTES,
)
from stacks.constructs.function import make_log_group
from stacks.constructs.image import make_image
from stacks.constructs.permissions import (
    Permission,
    pass_role,
)
from stacks.constructs.role import make_role
from stacks.constructs.stopped import Stopped, stop_before_deletion
from stacks.context import Network, StackContext
from stacks.deployment import Deployment
from stacks.system_stack import SystemStack, chosen_stacks
from stacks.systems.bulk_import.permissions import import_in_bulk
from stacks.systems.bulk_import.starting import start_jobs

# The maximum memory per processor of an EMR Serverless worker.
_GB_PER_CORE = 8
_DISK_GB_PER_CORE = 50


class EmrServerlessStack(SystemStack):
    """The application stops automatically, and starts with the next job.

    In a network without endpoints it would reach no logs and secrets, so it runs outside of the
    network then, from where it reaches the services of its region.
    """

    ingest_queue = "bulk_import_emr_serverless"

    def create(self, context: StackContext) -> None:
        deployment, network = context.deployment, context.network
        application = self._application(deployment, network)
        role = self._role(deployment)
        deployment.record(SERVERLESS_APPLICATION, application.attr_application_id)
        deployment.record(SERVERLESS_ROLE, role.role_arn)
        submit = [
            Permission(("emr-serverless:StartJobRun",), [application.attr_arn]),
            pass_role(role, "emr-serverless"),
        ]
        ask = Permission(
            ("emr-serverless:GetJobRun",),
            [f"{application.attr_arn}/jobruns/*"],
            "runs are created at run time",
        )
        # cdk-nag cannot resolve the application's ARN in another stack.
        runs = deployment.arn("emr-serverless", "/applications/*/jobruns/*")
        context.spark.extend(submit)
        context.spark.append(
            Permission(("emr-serverless:GetJobRun",), [runs], "runs are created at run time")
        )
        platform = PlatformName.EMR_SERVERLESS
        start = start_jobs(self, deployment, platform, submit=submit, ask=[ask])
        # CloudFormation deletes the starter first, which would start another job.
        start.node.add_dependency(_stop(self, deployment, application))

    def _application(
        self, deployment: Deployment, network: Network
    ) -> emrserverless.CfnApplication:
        image = make_image(self, deployment, emr_image(deployment.properties))
        cores = deployment.get(SERVERLESS_CORES_MAX)
        of_application = emrserverless.CfnApplication
        return of_application(
            self,
            "Application",
            name=deployment.name("bulk-import"),
            type="SPARK",
            release_label=deployment.get(EMR_RELEASE),
            architecture=deployment.get(ARCHITECTURE),
            image_configuration=of_application.ImageConfigurationInputProperty(image_uri=image.uri),
            auto_start_configuration=of_application.AutoStartConfigurationProperty(enabled=True),
            auto_stop_configuration=of_application.AutoStopConfigurationProperty(
                enabled=True, idle_timeout_minutes=deployment.get(SERVERLESS_STOP_MINUTES)
            ),
            maximum_capacity=of_application.MaximumAllowedResourcesProperty(
                cpu=f"{cores} vCPU",
                memory=f"{cores * _GB_PER_CORE} GB",
                disk=f"{cores * _DISK_GB_PER_CORE} GB",
            ),
            network_configuration=(
                None
                if network.has_public_addresses
                else of_application.NetworkConfigurationProperty(
                    subnet_ids=network.subnets,
                    security_group_ids=[network.group.security_group_id],
                )
            ),
        )

    def _role(self, deployment: Deployment) -> iam.Role:
        group = make_log_group(
            self, "Log", deployment, f"/sleeper/{deployment.name('bulk-import')}"
        )
        actions = ("logs:CreateLogStream", "logs:DescribeLogStreams", "logs:PutLogEvents")
        return make_role(
            self,
            "Role",
            deployment,
            service="emr-serverless",
            permissions=[
                *import_in_bulk(deployment),
                *(
                    permission
                    for stack in chosen_stacks(deployment)
                    for permission in stack.run_with_spark(deployment)
                ),
                Permission(actions, [group.log_group_arn]),
                Permission(("logs:DescribeLogGroups",), ["*"], "it takes no resource"),
            ],
        )


def _stop(
    scope: Construct, deployment: Deployment, application: emrserverless.CfnApplication
) -> cdk.CustomResource:
    """Cancels jobs and stops the application, which only then can be deleted."""
    arn = application.attr_arn
    stopped = Stopped(
        "emr-serverless",
        {"Application": application.attr_application_id},
        [
            Permission(
                (
                    "emr-serverless:GetApplication",
                    "emr-serverless:ListJobRuns",
                    "emr-serverless:StopApplication",
                ),
                [arn],
            ),
            Permission(
                ("emr-serverless:CancelJobRun",),
                [f"{arn}/jobruns/*"],
                "runs are created at run time",
            ),
        ],
    )
    return stop_before_deletion(scope, deployment, stopped, application)
