"""A web server of a test, in a thread."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from http.server import HTTPServer
from threading import Thread
from typing import TypeVar

Server = TypeVar("Server", bound=HTTPServer)


@contextmanager
def serving(server: Server) -> Iterator[Server]:
    """Serve in a thread until the block ends.

    By default a server looks twice a second whether it is to end, and each test would wait for that.
    """
    thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def url_of(server: HTTPServer) -> str:
    return f"http://127.0.0.1:{server.server_port}"
