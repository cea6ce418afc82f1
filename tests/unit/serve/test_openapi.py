"""The OpenAPI document: valid, complete, and equal to the file in the documentation."""

from pathlib import Path

import pytest
from starlette.routing import Route

from sleeper.instance import Instance
from sleeper.serve.application import make_application
from sleeper.serve.openapi import openapi_document, openapi_text
from sleeper.serve.service import ServerLimits

ROOT = Path(__file__).parents[3]


def test_document_is_valid_openapi() -> None:
    # It takes more than a second to load.
    from openapi_spec_validator import validate

    validate(openapi_document())


def test_document_has_exactly_the_routes_of_the_application(instance: Instance) -> None:
    routes = make_application(instance, ServerLimits(), with_page=False).routes
    served = {
        (route.path_format, method.lower())
        for route in routes
        if isinstance(route, Route)
        for method in route.methods or ()
        if method != "HEAD" and route.path_format != "/openapi.json"
    }
    description = {
        (path, method)
        for path, item in openapi_document()["paths"].items()
        for method in item
        if method != "parameters"
    }
    assert description == served


@pytest.mark.generated
def test_openapi_json_is_current() -> None:
    assert (ROOT / "docs" / "openapi.json").read_text() == openapi_text()
