"""The HTTP API behind API Gateway with IAM authorization: queries, and creation of tables."""

import aws_cdk as cdk
from aws_cdk import aws_apigatewayv2 as apigateway
from aws_cdk import aws_apigatewayv2_authorizers as authorizers
from aws_cdk import aws_apigatewayv2_integrations as integrations
from constructs import Construct

from sleeper.properties.deployed import (
    ADD_TABLE_URL,
    HTTP_API_URL,
    REST_API_URL,
)
from sleeper.properties.deployment import QUERY_MEMORY_MB
from sleeper.properties.instance import OptionalStack
from stacks.constructs.api_stage import make_stage
from stacks.constructs.function import FunctionCode, Size, make_function
from stacks.constructs.permissions import (
    BIRTHMARK,
    DATA,
    Permission,
    add_to_table_index,
    read_objects,
    read_queries,
    send,
    write_objects,
)
from stacks.constructs.state_permissions import commit, hold, read_state
from stacks.deployment import Deployment
from stacks.reporting import read_reports

# The timeout of API Gateway.
_TIMEOUT_SECONDS = 30
_STAGE = "$default"
_TABLES_PATH = "/sleeper/tables"


class HttpApiStack(cdk.NestedStack):
    """The routes of `sleeper serve` except its page. IAM authorizes every route.

    Only the function of one route creates tables. The other accepts no changes, and its role may
    write holds, but not the logs of tables.
    """

    def __init__(self, scope: Construct, construct_id: str, *, deployment: Deployment) -> None:
        super().__init__(scope, construct_id)
        function = make_function(
            self,
            "Serve",
            deployment,
            FunctionCode("serve_http", in_image=True),
            permissions=_permissions(deployment),
            size=Size(deployment.get(QUERY_MEMORY_MB), _TIMEOUT_SECONDS),
        )
        api = apigateway.HttpApi(
            self,
            "Api",
            api_name=deployment.name("http"),
            create_default_stage=False,
            default_authorizer=authorizers.HttpIamAuthorizer(),
        )
        integration = integrations.HttpLambdaIntegration("ServeIntegration", function)
        verbs = apigateway.HttpMethod
        methods = [verbs.GET, verbs.HEAD, verbs.POST]
        api.add_routes(path="/{proxy+}", methods=methods, integration=integration)
        add_table = make_function(
            self,
            "AddTable",
            deployment,
            FunctionCode("add_table"),
            permissions=_permissions_to_add(deployment),
            size=Size(timeout_seconds=_TIMEOUT_SECONDS),
        )
        api.add_routes(
            path=_TABLES_PATH,
            methods=[apigateway.HttpMethod.POST],
            integration=integrations.HttpLambdaIntegration("AddTableIntegration", add_table),
        )
        log_name = f"/aws/apigateway/{deployment.name('http')}"
        make_stage(self, deployment, api.api_id, _STAGE, log_name)
        for url in (HTTP_API_URL, REST_API_URL):
            deployment.record(url, api.api_endpoint)
        deployment.record(ADD_TABLE_URL, f"{api.api_endpoint}{_TABLES_PATH}")


def _permissions(deployment: Deployment) -> list[Permission]:
    allowed = [
        *read_reports(deployment),
        *hold(deployment),
        read_objects(deployment, DATA),
    ]
    if deployment.has(OptionalStack.QUERY):
        allowed += [send(deployment, "query"), *read_queries(deployment)]
    return allowed


def _permissions_to_add(deployment: Deployment) -> list[Permission]:
    return [
        *read_state(deployment),
        *commit(deployment),
        *add_to_table_index(deployment),
        write_objects(deployment, BIRTHMARK),
    ]
