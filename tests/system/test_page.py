"""The page of `sleeper serve` in a real browser, driven over its own debugging protocol."""

import json
import shutil
import subprocess
import time
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from websockets.sync.client import ClientConnection, connect

from tests.servers.serving import Serving, serving
from tests.system.served_table import instance_with_rows

BROWSER = shutil.which("chromium") or shutil.which("chromium-browser")
pytestmark = pytest.mark.skipif(
    BROWSER is None, reason="there is no chromium; `make test` installs it"
)
TOKEN = "a-token-of-some-length"


@dataclass
class Page:
    """A page in a browser. `errors` are the errors in its console."""

    protocol: ClientConnection
    errors: list[str] = field(default_factory=list)
    _calls: int = 0

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        self._calls += 1
        self.protocol.send(json.dumps({"id": self._calls, "method": method, "params": parameters}))
        while True:
            message = json.loads(self.protocol.recv(timeout=30))
            if message.get("id") == self._calls:
                answer: dict[str, Any] = message["result"]
                return answer
            entry = message.get("params", {}).get("entry", {})
            if message.get("method") == "Runtime.exceptionThrown" or entry.get("level") == "error":
                self.errors.append(json.dumps(message))

    def run(self, script: str) -> Any:
        return self.call("Runtime.evaluate", expression=script)["result"].get("value")

    def wait_until(self, script: str) -> None:
        end = time.monotonic() + 20
        while not self.run(script):
            assert time.monotonic() < end, f"never {script}; the page says: {self.text()}"
            time.sleep(0.1)

    def text(self) -> str:
        return str(self.run("document.body.innerText"))

    def submit(self, form: str, **fields: str) -> str:
        """Fills a form, sends it, waits for its end, and returns the status line."""
        for name, value in fields.items():
            self.run(f"document.getElementById('{name}').value = {json.dumps(value)}")
        self.run(f"document.querySelector('#{form} .run').click()")
        self.wait_until("!document.querySelector('.run:disabled')")
        return str(self.run("document.getElementById('status').innerText"))

    def rows(self) -> list[list[str]]:
        cells = "[...document.querySelectorAll('tr')].map(r => [...r.cells].map(c => c.innerText))"
        rows: list[list[str]] = json.loads(str(self.run(f"JSON.stringify({cells})")))
        return rows


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Serving]:
    with (
        instance_with_rows(tmp_path / "instance", 2000) as instance,
        serving(instance, token=TOKEN) as run,
    ):
        yield run


@pytest.fixture
def page(server: Serving, tmp_path: Path) -> Iterator[Page]:
    assert BROWSER is not None
    profile = tmp_path / "profile"
    options = ["--headless=new", "--no-sandbox", "--disable-gpu", "--remote-debugging-port=0"]
    command = [BROWSER, *options, f"--user-data-dir={profile}", "about:blank"]
    quiet = subprocess.DEVNULL
    with subprocess.Popen(command, stdout=quiet, stderr=quiet) as browser:
        try:
            with connect(_first_tab(profile), max_size=None, proxy=None) as protocol:
                page = Page(protocol)
                for domain in ("Page", "Runtime", "Log"):
                    page.call(f"{domain}.enable")
                page.call("Page.navigate", url=server.url)
                page.wait_until("!!document.querySelector('#token')")
                yield page
        finally:
            browser.terminate()


def _first_tab(profile: Path) -> str:
    message = profile / "DevToolsActivePort"
    end = time.monotonic() + 30
    while not (message.exists() and message.read_text().strip()):
        assert time.monotonic() < end, "the browser does not start"
        time.sleep(0.1)
    with urllib.request.urlopen(
        f"http://127.0.0.1:{message.read_text().split()[0]}/json"
    ) as answer:
        tabs = json.load(answer)
    return next(tab["webSocketDebuggerUrl"] for tab in tabs if tab["type"] == "page")


def test_the_page_shows_tables_and_runs_queries(page: Page) -> None:
    page.wait_until("document.getElementById('status').innerText.includes('token')")
    page.run(f"document.getElementById('token').value = '{TOKEN}'")
    page.errors.clear()  # Errors about the missing token.
    page.run("document.getElementById('token').dispatchEvent(new Event('change'))")
    page.wait_until("document.querySelectorAll('nav button').length === 3")
    page.run("[...document.querySelectorAll('nav button')][1].click()")
    page.wait_until("!document.getElementById('byKey').hidden")
    assert "2,000 rows in" in page.text()
    assert "id Long (row key)" in page.text()
    assert page.submit("byKey", key="7").startswith("1 row in")
    assert page.rows() == [["id", "name"], ["7", "row 7"]]
    assert page.submit("byKey", key="", min="10", max="12", columns="name").startswith("2 rows in")
    assert page.rows() == [["name"], ["row 10"], ["row 11"]]
    # More digits than a JavaScript number has, and text that looks like markup.
    message = page.submit("bySql", statement="SELECT 9007199254740993 AS n, '<b>x</b>' AS t")
    assert message.startswith("1 row in")
    assert page.rows() == [["n", "t"], ["9007199254740993", "<b>x</b>"]]
    assert page.submit("bySql", statement="SELECT * FROM numbers").startswith(
        "1,000 rows, and more"
    )
    assert page.errors == []
    assert "nope" in page.submit("bySql", statement="SELECT * FROM nope")
