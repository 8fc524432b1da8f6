"""A headless Chromium, driven by the W3C WebDriver protocol over HTTP; no package is needed for it."""

from __future__ import annotations

import base64
import os
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import requests

from tidegate_dev.processes import Supervised, free_port

CHROMIUM = shutil.which("chromium") or shutil.which("google-chrome")
DRIVER = shutil.which("chromedriver")
_ELEMENT = "element-6066-11e4-a52e-4f735466cecf"
_FLAGS = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--no-proxy-server"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
    "--disable-dev-shm-usage",
)


class Browser:
    """One window. What is looked for is waited for; `css` is a CSS selector."""

    def __init__(self, driver: str, session: str) -> None:
        self._url = f"{driver}/session/{session}"
        self._http = requests.Session()
        self._http.trust_env = False

    def open(self, url: str) -> None:
        self._call("POST", "url", url=url)

    @property
    def url(self) -> str:
        return str(self._call("GET", "url"))

    def set_cookie(self, name: str, value: str) -> None:
        """Set a cookie of the open site."""
        self._call("POST", "cookie", cookie={"name": name, "value": value})

    def resize(self, width: int, height: int) -> None:
        self._call("POST", "window/rect", width=width, height=height)

    def prefer(self, scheme: str) -> None:
        """`light` or `dark`, as a person has set it in the system."""
        features = [{"name": "prefers-color-scheme", "value": scheme}]
        self._call(
            "POST", "goog/cdp/execute", cmd="Emulation.setEmulatedMedia", params={"features": features}
        )

    def find(self, css: str) -> dict[str, str]:
        """An element, as soon as there is one."""
        return self.until(lambda: self._call("POST", "elements", using="css selector", value=css), css)[0]

    def text(self, css: str) -> str:
        return str(self._call("GET", f"element/{self.find(css)[_ELEMENT]}/text"))

    def click(self, css: str) -> None:
        self._call("POST", f"element/{self.find(css)[_ELEMENT]}/click")

    def enter_frame(self, css: str = "iframe") -> None:
        """Continue in the page in a frame."""
        self._call("POST", "frame", id=self.find(css))

    def leave_frame(self) -> None:
        self._call("POST", "frame", id=None)

    def script(self, body: str) -> Any:
        """Return the result of a function with this body in the page."""
        return self._call("POST", "execute/sync", script=body, args=[])

    def complaints(self) -> list[str]:
        """Return the errors and refused loads of the console since the last call."""
        entries = self._call("POST", "se/log", type="browser")
        return [entry["message"] for entry in entries if entry["level"] == "SEVERE"]

    def screenshot(self, path: Path) -> None:
        path.write_bytes(base64.b64decode(self._call("GET", "screenshot")))

    def until(self, look: Callable[[], Any], what: str, timeout_s: float = 30) -> Any:
        """The first true answer."""
        deadline = time.monotonic() + timeout_s
        while not (answer := look()):
            assert time.monotonic() < deadline, f"{what} did not come; the page is {self.url}"
            time.sleep(0.1)
        return answer

    def quit(self) -> None:
        self._http.delete(self._url, timeout=30)

    def _call(self, method: str, command: str, **parameters: Any) -> Any:
        body = parameters if method == "POST" else None
        answer = self._http.request(method, f"{self._url}/{command}", json=body, timeout=60)
        value = answer.json()["value"]
        assert answer.ok, f"{command} {parameters}: {value['message']}"
        return value


@contextmanager
def browser(folder: Path) -> Iterator[Browser]:
    """A browser without a past; the test is skipped where none is installed."""
    if CHROMIUM is None or DRIVER is None:
        pytest.skip("needs chromium and chromedriver (Debian: apt-get install chromium chromium-driver)")
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    environment = {**os.environ, "HOME": str(folder)}
    process = Supervised("chromedriver", [DRIVER, f"--port={port}"], folder / "driver.log", environment, 5)
    process.start()
    try:
        process.wait_ready(lambda: _is_ready(url), 30)
        window = Browser(url, _new_session(url, folder / "profile"))
        try:
            yield window
        finally:
            window.quit()
    finally:
        process.stop()


def _is_ready(url: str) -> bool:
    try:
        return bool(_local().get(f"{url}/status", timeout=5).json()["value"]["ready"])
    except requests.ConnectionError:
        return False


def _new_session(url: str, profile: Path) -> str:
    options = {"binary": CHROMIUM, "args": [*_FLAGS, f"--user-data-dir={profile}"]}
    capabilities = {"goog:chromeOptions": options, "goog:loggingPrefs": {"browser": "ALL"}}
    answer = _local().post(
        f"{url}/session", json={"capabilities": {"alwaysMatch": capabilities}}, timeout=120
    )
    value = answer.json()["value"]
    assert answer.ok, value["message"]
    return str(value["sessionId"])


def _local() -> requests.Session:
    """Return a session without the environment's proxies."""
    session = requests.Session()
    session.trust_env = False
    return session
