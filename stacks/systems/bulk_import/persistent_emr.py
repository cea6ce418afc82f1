"""Bulk import on a persistent EMR cluster, whose main node receives jobs from the queue."""

from typing import Any

import aws_cdk as cdk
from aws_cdk.aws_emr import CfnCluster

from sleeper.jobs.spark_platform import PYTHON, PlatformName, docker_configuration
from sleeper.properties.deployed import BULK_IMPORT, CONFIG, EMR_IMAGE, EMR_MAIN_FILE
from sleeper.properties.deployment import (
    EMR_EXECUTOR_TYPES,
    EMR_MAIN_TYPES,
    EMR_RELEASE,
    PERSISTENT_CAPACITY_MAX,
    PERSISTENT_CAPACITY_MIN,
    PERSISTENT_JOBS_MAX,
)
from stacks.constructs.acknowledged import acknowledge
from stacks.constructs.job_queue import make_job_queue
from stacks.constructs.permissions import receive, see_job
from stacks.context import Network, StackContext
from stacks.deployment import Deployment
from stacks.system_stack import SystemStack
from stacks.systems.bulk_import.emr_parts import EMR_TAG, EmrParts
from stacks.systems.bulk_import.permissions import keep_runs

_MODULE = "sleeper.workers.task"
_STOP_SECONDS = 60


class PersistentEmrStack(SystemStack):
    """The cluster has a cost while no job runs."""

    ingest_queue = "bulk_import_persistent_emr"
    needs_endpoints = True
    network_tags = ((EMR_TAG, "true"),)

    def create(self, context: StackContext) -> None:
        deployment, network = context.deployment, context.network
        platform = PlatformName.PERSISTENT_EMR
        jobs = make_job_queue(self, deployment, self.ingest_queue)
        parts = EmrParts(
            self,
            "Parts",
            deployment=deployment,
            network=network,
            name="bulk-import-persistent-emr",
            nodes_may=[
                receive(deployment, jobs.declared),
                see_job(deployment),
                *keep_runs(deployment, platform),
            ],
        )
        deployment.record(EMR_IMAGE, parts.image.uri)
        deployment.record(EMR_MAIN_FILE, parts.main_file_url)
        cluster = self._cluster(deployment, parts, network)
        reason = "there is no key pair, and the security groups allow only EMR"
        acknowledge(cluster, "EMR6", reason)
        acknowledge(cluster, "EMR4", "disks are encrypted if the account encrypts EBS by default")
        acknowledge(cluster, "EMR5", "S3 requires TLS, and nodes communicate in one network")

    def _cluster(self, deployment: Deployment, parts: EmrParts, network: Network) -> CfnCluster:
        least = deployment.get(PERSISTENT_CAPACITY_MIN)
        main = CfnCluster.InstanceFleetConfigProperty(
            target_on_demand_capacity=1,
            instance_type_configs=_types(deployment.get(EMR_MAIN_TYPES)),
        )
        others = CfnCluster.InstanceFleetConfigProperty(
            target_on_demand_capacity=least,
            instance_type_configs=_types(deployment.get(EMR_EXECUTOR_TYPES)),
        )
        return CfnCluster(
            self,
            "Cluster",
            name=deployment.name("bulk-import-persistent"),
            release_label=deployment.get(EMR_RELEASE),
            applications=[CfnCluster.ApplicationProperty(name="Spark")],
            configurations=[_configuration(docker_configuration(parts.image.uri))],
            service_role=parts.service_role.role_name,
            job_flow_role=parts.profile.ref,
            security_configuration=parts.security.ref,
            log_uri=f"s3://{deployment.bucket_name(BULK_IMPORT)}/logs/",
            instances=CfnCluster.JobFlowInstancesConfigProperty(
                master_instance_fleet=main,
                core_instance_fleet=others,
                ec2_subnet_ids=network.subnets,
                emr_managed_master_security_group=parts.nodes.security_group_id,
                emr_managed_slave_security_group=parts.nodes.security_group_id,
                service_access_security_group=parts.service.security_group_id,
                keep_job_flow_alive_when_no_steps=True,
                termination_protected=False,
            ),
            managed_scaling_policy=CfnCluster.ManagedScalingPolicyProperty(
                compute_limits=CfnCluster.ComputeLimitsProperty(
                    unit_type="InstanceFleetUnits",
                    minimum_capacity_units=least,
                    maximum_capacity_units=max(least, deployment.get(PERSISTENT_CAPACITY_MAX)),
                )
            ),
            steps=[
                CfnCluster.StepConfigProperty(
                    name="receive jobs from the queue",
                    action_on_failure="CONTINUE",
                    hadoop_jar_step=CfnCluster.HadoopJarStepConfigProperty(
                        jar="command-runner.jar",
                        args=["bash", "-ec", _start_workers(deployment, parts.image.uri)],
                    ),
                )
            ],
            tags=[cdk.CfnTag(key=EMR_TAG, value="true")],
        )


def _start_workers(deployment: Deployment, image: str) -> str:
    """Returns the script that starts one container per concurrent job. Docker restarts them."""
    registry = f"{cdk.Aws.ACCOUNT_ID}.dkr.ecr.{cdk.Aws.REGION}.{cdk.Aws.URL_SUFFIX}"
    variables = {
        "SLEEPER_INSTANCE": f"aws:{deployment.id}",
        "SLEEPER_CONFIG_BUCKET": deployment.bucket_name(CONFIG),
        "AWS_DEFAULT_REGION": cdk.Aws.REGION,
        "HADOOP_CONF_DIR": "/etc/hadoop/conf",
        "SPARK_CONF_DIR": "/etc/spark/conf",
    }
    environment = " ".join(f"-e {name}={value}" for name, value in variables.items())
    login = (
        f"aws ecr get-login-password --region {cdk.Aws.REGION}"
        f" | sudo docker login --username AWS --password-stdin {registry}"
    )
    run = (
        f"sudo docker run -d --restart always --stop-timeout {_STOP_SECONDS} --net host"
        f" -v /etc/hadoop:/etc/hadoop:ro -v /etc/spark:/etc/spark:ro {environment}"
        f" --entrypoint {PYTHON} {image} -m {_MODULE}"
    )
    jobs = deployment.get(PERSISTENT_JOBS_MAX)
    return f"{login}\nfor job in $(seq {jobs}); do {run}; done"


def _types(names: tuple[str, ...]) -> list[CfnCluster.InstanceTypeConfigProperty]:
    config = CfnCluster.InstanceTypeConfigProperty
    return [config(instance_type=name, weighted_capacity=1) for name in names]


def _configuration(raw: dict[str, Any]) -> CfnCluster.ConfigurationProperty:
    return CfnCluster.ConfigurationProperty(
        classification=raw["Classification"],
        configuration_properties=raw.get("Properties"),
        configurations=[_configuration(each) for each in raw.get("Configurations", ())] or None,
    )
