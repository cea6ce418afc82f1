"""The topic that receives alarms, and its mail subscription."""

import aws_cdk as cdk
from aws_cdk import aws_iam as iam
from aws_cdk import aws_sns as sns
from aws_cdk import aws_sns_subscriptions as subscriptions
from constructs import Construct

from sleeper.properties.instance import ERRORS_EMAIL
from stacks.constructs.key import find_key
from stacks.deployment import Deployment


class AlarmsStack(cdk.NestedStack):
    """Returns the topic of alarms."""

    def __init__(self, scope: Construct, construct_id: str, *, deployment: Deployment) -> None:
        super().__init__(scope, construct_id)
        self.topic = sns.Topic(
            self,
            "Alarms",
            topic_name=deployment.name("alarms"),
            master_key=find_key(self, "Alarms", deployment),
            enforce_ssl=True,
        )
        # A custom policy, such as for TLS, replaces the default policy that lets the account's
        # alarms publish.
        self.topic.add_to_resource_policy(
            iam.PolicyStatement(
                principals=[iam.ServicePrincipal("cloudwatch.amazonaws.com")],
                actions=["sns:Publish"],
                resources=[self.topic.topic_arn],
                conditions={"StringEquals": {"aws:SourceAccount": cdk.Aws.ACCOUNT_ID}},
            )
        )
        address = deployment.get(ERRORS_EMAIL)
        if address:
            self.topic.add_subscription(subscriptions.EmailSubscription(address))
        else:
            cdk.Annotations.of(self).add_warning_v2(
                "sleeper:no-mail-of-alarms",
                f"nobody receives the alarms: set {ERRORS_EMAIL.name} in instance.properties, or "
                "pass -c email=ADDRESS",
            )
