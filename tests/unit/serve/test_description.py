"""The OpenAPI description: valid, true to the application, and written down."""

from pathlib import Path

import pytest
from openapi_spec_validator import validate
from starlette.routing import Route

from sleeper.instance import Instance
from sleeper.serve.application import make_application
from sleeper.serve.description import description
from sleeper.serve.docs import openapi_text
from sleeper.serve.rows import MEMBERS
from sleeper.serve.terms import Terms

ROOT = Path(__file__).parents[3]


def test_the_description_is_valid_openapi() -> None:
    validate(description())


def test_every_route_is_described_and_nothing_else(instance: Instance) -> None:
    routes = make_application(instance, Terms(), with_page=False).routes
    served = {
        (route.path_format, method.lower())
        for route in routes
        if isinstance(route, Route)
        for method in route.methods or ()
        if method != "HEAD" and route.path_format != "/openapi.json"
    }
    described = {
        (path, method)
        for path, each in description()["paths"].items()
        for method in each
        if method != "parameters"
    }
    assert described == served


def test_every_member_of_a_query_is_described() -> None:
    assert tuple(description()["components"]["schemas"]["Query"]["properties"]) == MEMBERS


@pytest.mark.generated
def test_the_file_is_what_its_source_makes() -> None:
    assert (ROOT / "docs" / "openapi.json").read_text() == openapi_text()
