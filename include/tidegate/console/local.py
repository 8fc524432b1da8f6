"""The console without Airflow: on this machine's loopback, for the person who works on it."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Collection, Iterable, Sequence
from contextlib import suppress

import uvicorn
from fastapi import FastAPI, Request
from fastapi.params import Depends
from starlette.middleware.trustedhost import TrustedHostMiddleware

from tidegate.app import App, OpenSession
from tidegate.console.routes import create_app
from tidegate.errors import SetupFailed
from tidegate.inspect import CatalogEntry

ADDRESS = "127.0.0.1"


class LocalHost:
    """Serves the pages to whoever is on this machine: the settings are those of the process.

    `sessions` returns what opens a Spark session, with the settings of an app; None: no page starts Spark.
    """

    def __init__(self, sessions: Callable[[App], OpenSession] | None = None) -> None:
        self._sessions = sessions

    may_enter: Sequence[Depends] = ()
    may_read_runs: Sequence[Depends] = ()
    may_read_logs: Sequence[Depends] = ()
    airflow = None

    def open_app(self) -> App:
        """Return an app that only reads. Raises SettingsInvalid, LedgerUnavailable."""
        return App.for_reading(os.environ)

    def open_session(self, app: App) -> OpenSession | None:
        """Return what opens a Spark session of this process: the person waits for it, and nobody else."""
        return None if self._sessions is None else self._sessions(app)

    def connected(self, app: App, entries: Iterable[CatalogEntry]) -> App:
        """Return the same app: its settings have all connections."""
        del entries
        return app

    def readable_dags(self, request: Request, dag_ids: Collection[str]) -> set[str]:
        """Return all pipelines."""
        del request
        return set(dag_ids)

    def reads_logs(self, request: Request, dag_id: str) -> bool:
        """Return True: the person can read the files of the lake, too."""
        del request, dag_id
        return True

    def may_trigger(self, request: Request, dag_id: str) -> bool:
        """Return False: without Airflow there is no DAG to trigger, and the person has a shell."""
        del request, dag_id
        return False

    def existing_runs(self, dag_id: str, ledger_ids: Collection[str]) -> dict[str, str]:
        """Return no run: there is no Airflow to show it."""
        del dag_id, ledger_ids
        return {}

    def run_in_ledger(self, dag_id: str, run_id: str) -> str:
        """Return the given id."""
        del dag_id
        return run_id

    def waiting_reasons(self, dag_id: str) -> list[str]:
        """Return nothing: without Airflow there are no tasks."""
        del dag_id
        return []

    def login_path(self, request: Request) -> str:
        """Return the first page: nobody has to log in."""
        return str(request.scope.get("root_path", "")) + "/"


def listen(port: int) -> socket.socket:
    """Return a socket on this machine's loopback. Raises SetupFailed if the port is in use.

    Args:
        port: The port; 0 takes a free one.
    """
    listener = socket.socket()
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((ADDRESS, port))
        # from now on a request waits until it is answered
        listener.listen()
    except OSError as error:
        listener.close()
        raise SetupFailed(
            f"Port {port} cannot be used: {error.strerror}", "Choose another one, or --port 0 for a free one."
        ) from None
    return listener


def application(sessions: Callable[[App], OpenSession] | None = None) -> FastAPI:
    """Return the application, which answers only under this machine's own names. `sessions`: as for
    `LocalHost`.
    """
    app = create_app(LocalHost(sessions))
    # A web page elsewhere could have its own name resolve to this address, and read the answers.
    app.add_middleware(TrustedHostMiddleware, allowed_hosts=[ADDRESS, "localhost"])
    return app


def serve(listener: socket.socket, sessions: Callable[[App], OpenSession]) -> None:
    """Serve the pages until the process is interrupted.

    Args:
        listener: A socket, as `listen` returns it.
        sessions: As for `LocalHost`.
    """
    # uvicorn raises the interrupt again when it has answered what was asked before
    with suppress(KeyboardInterrupt):
        uvicorn.Server(uvicorn.Config(application(sessions), log_level="warning")).run(sockets=[listener])
