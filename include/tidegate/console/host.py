"""What serves the pages: it decides who may see what, and knows the runs of batches."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import Protocol

from fastapi import Request
from fastapi.params import Depends

from tidegate.app import App, OpenSession
from tidegate.inspect import CatalogEntry


class Host(Protocol):
    """Serves the pages. The pages of a pipeline have the id of its DAG as the path parameter `dag_id`.

    Args:
        may_enter: Dependencies of every page, which refuse a request without a login.
        may_read_runs: Dependencies of the pages of a pipeline.
        may_read_logs: Dependencies of pages that quote records.
        airflow: The path below which Airflow is served; None without Airflow.
    """

    may_enter: Sequence[Depends]
    may_read_runs: Sequence[Depends]
    may_read_logs: Sequence[Depends]

    @property
    def airflow(self) -> str | None: ...

    def open_app(self) -> App:
        """Return an app with this process's settings.

        Raises SettingsInvalid if a setting cannot be used, LedgerUnavailable if the database does not answer.
        """

    def open_session(self, app: App) -> OpenSession | None:
        """Return what opens the Spark session that decides a batch again for a page; None if this host starts
        no Spark.
        """

    def connected(self, app: App, entries: Iterable[CatalogEntry]) -> App:
        """Return the app with the connections to the sources and sinks of these pipelines' streams."""

    def readable_dags(self, request: Request, dag_ids: Collection[str]) -> set[str]:
        """Return which pipelines the user of a request may read, by the ids of their DAGs."""

    def reads_logs(self, request: Request, dag_id: str) -> bool:
        """Return whether the user of a request may also read pages that quote records."""

    def may_trigger(self, request: Request, dag_id: str) -> bool:
        """Return whether the user of a request may trigger runs of a DAG."""

    def existing_runs(self, dag_id: str, ledger_ids: Collection[str]) -> dict[str, str]:
        """Return the ledger's id -> Airflow's id, for those of the runs that Airflow has."""

    def run_in_ledger(self, dag_id: str, run_id: str) -> str:
        """Return the ledger's id of a run of Airflow; the given id if Airflow does not have the run."""

    def waiting_reasons(self, dag_id: str) -> list[str]:
        """Return a sentence for each task of the DAG that does not start."""

    def login_path(self, request: Request) -> str:
        """Return the path of the login that leads back to the request's page."""


def host_of(request: Request) -> Host:
    """Return what serves the page of a request."""
    host: Host = request.app.state.host
    return host
