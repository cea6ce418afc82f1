"""A real browser without a window, driven over its own debugging protocol."""

import base64
import json
import shutil
import subprocess
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from websockets.sync.client import ClientConnection, connect

BROWSER = shutil.which("chromium") or shutil.which("chromium-browser")
_OPTIONS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--hide-scrollbars",
    "--remote-debugging-port=0",
)
_WAIT_SECONDS = 30
_KEYS = {"Tab": 9, "Enter": 13, "Escape": 27, "ArrowDown": 40, "ArrowUp": 38, " ": 32}
_CTRL, _SHIFT = 2, 8


@dataclass
class Page:
    """A page in a browser. `errors` are exceptions and errors in its console."""

    protocol: ClientConnection
    errors: list[str] = field(default_factory=list)
    _calls: int = 0

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        """Calls a method of the protocol, and notes the errors that the page has reported."""
        self._calls += 1
        self.protocol.send(json.dumps({"id": self._calls, "method": method, "params": parameters}))
        while True:
            message = json.loads(self.protocol.recv(timeout=_WAIT_SECONDS))
            if message.get("id") == self._calls:
                assert "result" in message, message
                answer: dict[str, Any] = message["result"]
                return answer
            entry = message.get("params", {}).get("entry", {})
            if message.get("method") == "Runtime.exceptionThrown" or entry.get("level") == "error":
                self.errors.append(json.dumps(message))

    def open(self, url: str) -> None:
        self.call("Page.navigate", url=url)

    def run(self, script: str) -> Any:
        """Returns the value of an expression, or of the promise that it is."""
        answer = self.call(
            "Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True
        )
        assert "exceptionDetails" not in answer, answer
        return answer["result"].get("value")

    def wait_until(self, script: str) -> None:
        end = time.monotonic() + _WAIT_SECONDS
        while not self.run(f"!!({script})"):
            assert time.monotonic() < end, f"never {script}; the page says: {self.text()}"
            time.sleep(0.05)

    def wait_for_text(self, text: str) -> None:
        self.wait_until(f"document.body?.innerText.includes({json.dumps(text)})")

    def text(self) -> str:
        return str(self.run("document.body?.innerText ?? ''"))

    def resize(self, width: int, height: int) -> None:
        self.call(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=False,
        )

    def prefer(self, colours: str) -> None:
        """Sets the preference of the system: light or dark."""
        features = [{"name": "prefers-color-scheme", "value": colours}]
        self.call("Emulation.setEmulatedMedia", features=features)

    def press(self, key: str, ctrl: bool = False, shift: bool = False) -> None:
        event = {
            "key": key,
            "code": "Space" if key == " " else key,
            "windowsVirtualKeyCode": _KEYS[key],
            "modifiers": (_CTRL if ctrl else 0) + (_SHIFT if shift else 0),
        }
        text = {"text": "\r"} if key == "Enter" and not ctrl else {}
        self.call("Input.dispatchKeyEvent", type="keyDown", **event, **text)
        self.call("Input.dispatchKeyEvent", type="keyUp", **event)

    def type(self, text: str) -> None:
        """Types into the element with the focus."""
        for character in text:
            self.call("Input.dispatchKeyEvent", type="keyDown", text=character, key=character)
            self.call("Input.dispatchKeyEvent", type="keyUp", key=character)

    def screenshot(self) -> bytes:
        return base64.b64decode(self.call("Page.captureScreenshot", format="png")["data"])


@contextmanager
def open_browser(profile: Path) -> Iterator[Page]:
    """Starts a browser with an empty page and a new profile, and ends it."""
    assert BROWSER is not None
    command = [BROWSER, *_OPTIONS, f"--user-data-dir={profile}", "about:blank"]
    quiet = subprocess.DEVNULL
    with subprocess.Popen(command, stdout=quiet, stderr=quiet) as browser:
        try:
            with connect(_first_tab(profile), max_size=None, proxy=None) as protocol:
                page = Page(protocol)
                for domain in ("Page", "Runtime", "Log"):
                    page.call(f"{domain}.enable")
                yield page
        finally:
            browser.terminate()


def _first_tab(profile: Path) -> str:
    message = profile / "DevToolsActivePort"
    end = time.monotonic() + _WAIT_SECONDS
    while not (message.exists() and message.read_text().strip()):
        assert time.monotonic() < end, "the browser does not start"
        time.sleep(0.05)
    with urllib.request.urlopen(
        f"http://127.0.0.1:{message.read_text().split()[0]}/json"
    ) as answer:
        tabs = json.load(answer)
    return str(next(tab["webSocketDebuggerUrl"] for tab in tabs if tab["type"] == "page"))
