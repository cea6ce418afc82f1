"""The files of the console: what they may load, and how browsers keep them."""

import re
from importlib import resources

import pytest

from sleeper.instance import Instance
from tests.unit.serve.client import TOKEN, request

_FILES = {file.name: file for file in (resources.files("sleeper.serve") / "console").iterdir()}
_SCRIPTS = sorted(name for name in _FILES if name.endswith(".js"))


def test_the_page_runs_only_code_of_this_server(instance: Instance) -> None:
    answer = request(instance, "GET", "/")
    assert answer.status_code == 200
    assert answer.headers["content-type"] == "text/html; charset=utf-8"
    policy = answer.headers["content-security-policy"]
    assert policy.startswith("default-src 'none'; script-src 'self'; style-src 'self'; connect-")
    assert "unsafe" not in policy
    assert not re.search(r"<style|\sstyle=|\son\w+=|<script(?![^>]*\ssrc=)", answer.text)


@pytest.mark.parametrize("name", sorted(_FILES))
def test_files_need_no_token_and_are_kept_until_they_change(instance: Instance, name: str) -> None:
    answer = request(instance, "GET", f"/console/{name}", token=TOKEN)
    assert answer.status_code == 200
    assert answer.content == _FILES[name].read_bytes()
    assert answer.headers["cache-control"] == "no-cache"
    assert answer.headers["x-content-type-options"] == "nosniff"
    known = {"If-None-Match": answer.headers["etag"]}
    again = request(instance, "GET", f"/console/{name}", token=TOKEN, headers=known)
    assert (again.status_code, again.content) == (304, b"")
    changed = request(instance, "GET", f"/console/{name}", headers={"If-None-Match": '"other"'})
    assert changed.status_code == 200


@pytest.mark.parametrize("path", ["nope.js", "..%2faccess.py", "%2e%2e/access.py", "a/b.js", ""])
def test_other_files_are_not_served(instance: Instance, path: str) -> None:
    assert request(instance, "GET", f"/console/{path}").status_code == 404


@pytest.mark.parametrize("name", [*_SCRIPTS, "style.css", "index.html"])
def test_no_file_loads_content_from_elsewhere_or_makes_markup_from_text(name: str) -> None:
    text = _FILES[name].read_text(encoding="utf-8").replace("http://www.w3.org/2000/svg", "")
    assert not re.search(r"https?://|@import|url\(", text)
    assert not re.search(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|eval\(", text)
    imports = re.findall(r'from "([^"]+)"', text)
    assert {each.removeprefix("./") for each in imports} <= set(_FILES)


@pytest.mark.parametrize("name", _SCRIPTS)
def test_every_script_is_used(name: str) -> None:
    others = "".join(_FILES[n].read_text() for n in ("index.html", *_SCRIPTS) if n != name)
    assert f"/{name}" in others


def test_there_is_no_console_without_the_page(instance: Instance) -> None:
    from sleeper.serve.application import make_application
    from sleeper.serve.service import ServerLimits

    routes = make_application(instance, ServerLimits(), with_page=False).routes
    assert not [route for route in routes if "console" in str(getattr(route, "path", ""))]
