"""A CDK app with an instance, and a stack of its own that uses the instance.

The folder of the instance's properties and this app can be anywhere. `cdk.json` adds the clone of
the repository, two folders above, to Python's path.
"""

from pathlib import Path

import aws_cdk as cdk
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_sns_subscriptions as subscriptions
from aws_cdk import aws_sqs as sqs
from constructs import Construct

from sleeper.admin.instance_folder import read_instance_folder
from stacks.instance import SleeperInstance

PROPERTIES = Path(__file__).parents[2] / "docs" / "examples" / "deploy" / "instance.properties"
SUBMIT = """
import json, os, boto3

def handler(event, context):
    body = json.dumps({"tableName": event["table"], "files": event["files"]})
    boto3.client("sqs").send_message(QueueUrl=os.environ["INGEST_QUEUE"], MessageBody=body)
"""


class JobsStack(cdk.Stack):
    """A function that submits ingest jobs, and can query and read the files of data.

    A queue receives the alarms of the instance.
    """

    def __init__(
        self, scope: Construct, construct_id: str, *, sleeper: SleeperInstance, **settings: object
    ) -> None:
        super().__init__(scope, construct_id, **settings)  # type: ignore[arg-type]
        jobs = sleeper.queue("ingest")
        submit = lambda_.Function(
            self,
            "Submit",
            runtime=lambda_.Runtime.PYTHON_3_13,
            handler="index.handler",
            code=lambda_.Code.from_inline(SUBMIT),
            environment={"INGEST_QUEUE": jobs.queue_url, "QUERY_ROLE": sleeper.query_role.role_arn},
        )
        jobs.grant_send_messages(submit)
        sleeper.data_bucket.grant_read(submit)
        sleeper.query_role.grant_assume_role(submit)
        received = sqs.Queue(self, "ReceivedAlarms", enforce_ssl=True)
        sleeper.alarms.add_subscription(subscriptions.SqsSubscription(received))


def make_app(context: dict[str, object] | None = None, outdir: str | None = None) -> cdk.App:
    """Returns the app before synthesis."""
    app = cdk.App(context=context, outdir=outdir)
    sleeper = SleeperInstance(app, "sleeper-example", folder=read_instance_folder(PROPERTIES))
    JobsStack(app, "Jobs", sleeper=sleeper)
    return app


if __name__ == "__main__":
    make_app().synth()
