"""The OpenAPI 3.1 document, generated from the endpoints.

`python -m sleeper.serve.openapi > docs/openapi.json` writes the file in the documentation.
"""

import json
import re
import sys
from functools import cache

from sleeper import __version__
from sleeper.serve.endpoint import Endpoint, Parameter
from sleeper.serve.routes import ENDPOINTS
from sleeper.serve.row_answer import ROW_FORMATS
from sleeper.serve.schema import TEXT, Json, Model, object_schema

_PROBLEM = Model("Problem", object_schema({"error": TEXT, "reason": TEXT}, {}))
_ERROR_STATUSES = (401, 403)


@cache
def openapi_document() -> Json:
    """Returns the document as a JSON object."""
    endpoints = ENDPOINTS
    models = [m for e in endpoints for m in (e.body, e.response) if m is not None]
    paths: Json = {}
    for endpoint in endpoints:
        item = paths.setdefault(re.sub(r":\w+}", "}", endpoint.path), {})
        if endpoint.parameters:
            item["parameters"] = [_parameter(each) for each in endpoint.parameters]
        item[endpoint.method.lower()] = _operation(endpoint)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Sleeper",
            "version": __version__,
            "summary": "Metadata and rows of the tables of an instance.",
            "license": {"name": "Apache 2.0", "identifier": "Apache-2.0"},
        },
        "security": [{}, {"bearer": []}],
        "paths": paths,
        "components": {
            "securitySchemes": {
                "bearer": {
                    "type": "http",
                    "scheme": "bearer",
                    "description": "The token of `sleeper serve`, if it has one. On AWS: IAM, "
                    "signature version 4.",
                }
            },
            "schemas": {model.name: model.schema for model in (*models, _PROBLEM)},
        },
    }


def openapi_text() -> str:
    """Returns the document as the text of `docs/openapi.json`."""
    return json.dumps(openapi_document(), indent=2, ensure_ascii=False) + "\n"


def _operation(endpoint: Endpoint) -> Json:
    rows: Json = {each.media_type: {} for each in ROW_FORMATS}
    content = rows if endpoint.response is None else _json_content(endpoint.response)
    problem = {"description": "error", "content": _json_content(_PROBLEM)}
    operation: Json = {
        "operationId": endpoint.name,
        "summary": endpoint.summary,
        "responses": {
            str(endpoint.status): {"description": "success", "content": content},
            **{str(status): problem for status in (*endpoint.errors, *_ERROR_STATUSES)},
            "default": problem,
        },
    }
    if endpoint.body is not None:
        operation["requestBody"] = {"required": True, "content": _json_content(endpoint.body)}
    if endpoint.row_types:
        content = {each: {} for each in endpoint.row_types}
        operation["requestBody"] = {"required": True, "content": content}
    return operation


def _json_content(model: Model) -> Json:
    return {"application/json": {"schema": {"$ref": f"#/components/schemas/{model.name}"}}}


def _parameter(parameter: Parameter) -> Json:
    return {
        "name": parameter.name,
        "in": parameter.location,
        "required": parameter.location == "path",
        "description": parameter.description,
        "schema": parameter.schema or TEXT,
    }


if __name__ == "__main__":
    sys.stdout.write(openapi_text())
