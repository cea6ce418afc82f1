"""Queries over a WebSocket: the stage `live` of an API with IAM authorization."""

from collections.abc import Sequence

import aws_cdk as cdk
from aws_cdk import aws_apigatewayv2 as apigateway
from aws_cdk import aws_apigatewayv2_authorizers as authorizers
from aws_cdk import aws_apigatewayv2_integrations as integrations
from aws_cdk import aws_iam as iam
from aws_cdk import aws_lambda as lambda_
from constructs import Construct

from sleeper.properties.deployed import QUERY_WEBSOCKET_URL
from stacks.constructs.acknowledged import acknowledge
from stacks.constructs.api_stage import make_stage
from stacks.constructs.function import FunctionCode, Size, make_function
from stacks.constructs.permissions import find_tables, send, send_frames
from stacks.constructs.role import allow
from stacks.deployment import Deployment

# docs/formats.md, "WebSocket frames".
LIVE_STAGE = "live"


class WebSocketQueryStack(cdk.NestedStack):
    """A function forwards queries to the queue, and the functions that run them send frames.

    `senders` are the functions of other stacks that may send frames, and `api_id` is the id of the
    API.
    """

    def __init__(
        self,
        scope: Construct,
        construct_id: str,
        *,
        deployment: Deployment,
        senders: Sequence[lambda_.Function],
    ) -> None:
        super().__init__(scope, construct_id)
        api = apigateway.WebSocketApi(self, "Api", api_name=deployment.name("live"))
        function = make_function(
            self,
            "Handle",
            deployment,
            FunctionCode("handle_websocket"),
            permissions=[
                *find_tables(deployment),
                send(deployment, "query"),
            ],
            size=Size(keeps_state=False),
        )
        # Here, because the statements of other stacks could name the API only by a wildcard.
        frames = iam.Policy(self, "Frames", roles=[_role(each) for each in (function, *senders)])
        allow(frames, deployment, [send_frames(deployment, api.api_id, LIVE_STAGE)])
        for route in ("$connect", "$disconnect", "$default"):
            name = route.removeprefix("$").title()
            integration = integrations.WebSocketLambdaIntegration(f"{name}Integration", function)
            asks_iam = route == "$connect"
            added = api.add_route(
                route,
                integration=integration,
                authorizer=authorizers.WebSocketIamAuthorizer() if asks_iam else None,
            )
            if not asks_iam:
                acknowledge(added, "APIG4", "IAM authorizes a connection when it is created")
        stage = make_stage(self, deployment, api.api_id, LIVE_STAGE, None)
        acknowledge(
            stage,
            "APIG1",
            "access logs of WebSockets need a role that is set for the whole account",
        )
        self.api_id = api.api_id
        deployment.record(QUERY_WEBSOCKET_URL, f"{api.api_endpoint}/{LIVE_STAGE}")


def _role(function: lambda_.Function) -> iam.IRole:
    assert function.role is not None
    return function.role
