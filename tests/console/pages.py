"""The pages of what a test has made, and what a person reads on them."""

from __future__ import annotations

import html
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from threading import Thread

import pytest
import uvicorn
from fastapi.testclient import TestClient

from tidegate.console.local import ADDRESS, application, listen


def set_environment(monkeypatch: pytest.MonkeyPatch, environment: Mapping[str, str]) -> None:
    """Set the variables that the pages read, without the broker and the lake of the machine."""
    for name in ("TIDEGATE_KAFKA", "TIDEGATE_LAKE"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)


@contextmanager
def served() -> Iterator[TestClient]:
    """Give a browser on the pages of `tidegate ui`."""
    with TestClient(application(), base_url=f"http://{ADDRESS}") as client:
        yield client


@contextmanager
def running() -> Iterator[str]:
    """Serve the pages of `tidegate ui` from a thread; gives their address, for a real browser."""
    listener = listen(0)
    server = uvicorn.Server(uvicorn.Config(application(), log_level="warning"))
    thread = Thread(target=server.run, kwargs={"sockets": [listener]})
    thread.start()
    try:
        yield f"http://{ADDRESS}:{listener.getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join()
        listener.close()


def visible_text(page: str) -> str:
    """Return the visible text of a page in one line."""
    body = re.sub(r"<(style|script|title)>.*?</\1>", "", page, flags=re.DOTALL)
    return " ".join(html.unescape(re.sub(r"<[^>]*>", " ", body)).split())
