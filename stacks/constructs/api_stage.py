"""A stage of an API, with its throttling and its access log."""

import json

from aws_cdk import aws_apigatewayv2 as apigateway
from constructs import Construct

from sleeper.properties.deployment import API_BURST_MAX, API_REQUESTS_PER_SECOND_MAX
from stacks.constructs.function import make_log_group
from stacks.deployment import Deployment

_LOGGED = {
    "requestId": "$context.requestId",
    "caller": "$context.identity.userArn",
    "address": "$context.identity.sourceIp",
    "route": "$context.routeKey",
    "path": "$context.path",
    "status": "$context.status",
    "bytes": "$context.responseLength",
    "milliseconds": "$context.responseLatency",
    "error": "$context.error.message",
}


def make_stage(
    scope: Construct, deployment: Deployment, api_id: str, name: str, log_name: str | None
) -> apigateway.CfnStage:
    """Returns an automatically deployed stage, with an access log if `log_name` is set."""
    log = None
    if log_name is not None:
        group = make_log_group(scope, "AccessLog", deployment, log_name)
        log = apigateway.CfnStage.AccessLogSettingsProperty(
            destination_arn=group.log_group_arn, format=json.dumps(_LOGGED)
        )
    return apigateway.CfnStage(
        scope,
        "Stage",
        api_id=api_id,
        stage_name=name,
        auto_deploy=True,
        access_log_settings=log,
        default_route_settings=apigateway.CfnStage.RouteSettingsProperty(
            throttling_rate_limit=deployment.get(API_REQUESTS_PER_SECOND_MAX),
            throttling_burst_limit=deployment.get(API_BURST_MAX),
        ),
    )
