"""Render templates to responses. Values are escaped, and headers limit what a browser may load or frame."""

from __future__ import annotations

import base64
import hashlib
from pathlib import Path
from typing import Any

from fastapi import Request
from fastapi.responses import HTMLResponse, Response
from jinja2 import Environment, FileSystemLoader, StrictUndefined

from tidegate.ledger import Stream
from tidegate_airflow.links import quoted, root_path
from tidegate_airflow.ui import text

_FOLDER = Path(__file__).parent / "templates"
_STYLE = (_FOLDER / "style.css").read_text()
_SCRIPT = (_FOLDER / "frame.js").read_text()


def _digest(content: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()}'"


_HEADERS = {
    "Content-Security-Policy": (
        f"default-src 'none'; style-src {_digest(_STYLE)}; script-src {_digest(_SCRIPT)}; "
        "form-action 'self'; base-uri 'none'; frame-ancestors 'self'"
    ),
    # Pages depend on the user's rights, so no cache may serve one to another user.
    "Cache-Control": "no-store",
    "Referrer-Policy": "same-origin",
    "X-Content-Type-Options": "nosniff",
}


_DOCS_HEADERS = _HEADERS | {
    # Great Expectations' templates have styles in attributes. No script runs, and nothing is loaded from
    # other hosts.
    "Content-Security-Policy": "default-src 'none'; style-src 'self' 'unsafe-inline'; form-action 'none'; "
    "base-uri 'none'; frame-ancestors 'self'"
}
_MEDIA_TYPES = {"css": "text/css", "html": "text/html", "json": "application/json"}


class Links:
    """The paths of pages. `base` is the path of tidegate's pages, `airflow` that of Airflow's."""

    def __init__(self, base: str, airflow: str) -> None:
        self.base, self.airflow = base, airflow

    @property
    def index(self) -> str:
        """The page of all pipelines."""
        return f"{self.base}/"

    def pipeline(self, dag_id: str, stream: Stream | None = None) -> str:
        """Return the page of a pipeline; without a stream, in the generation of its file.

        Example: `/tidegate/dags/orders?generation=2`
        """
        generation = f"?generation={stream.generation}" if stream is not None else ""
        return f"{self.base}/dags/{quoted(dag_id)}{generation}"

    def batch(self, dag_id: str, stream: Stream, seq: int) -> str:
        """Return the page of a batch.

        Example: `/tidegate/dags/orders/batches/7?generation=2`
        """
        return f"{self.base}/dags/{quoted(dag_id)}/batches/{seq}?generation={stream.generation}"

    def docs(self, dag_id: str, page: str) -> str:
        """Return a page of Data Docs, by its path below their root.

        Example: `/tidegate/dags/orders/docs/orders/g1/index.html`
        """
        return f"{self.base}/dags/{quoted(dag_id)}/docs/{page}"

    def check(self, dag_id: str) -> str:
        """Return the page with the findings of doctor.

        Example: `/tidegate/dags/orders/check`
        """
        return f"{self.base}/dags/{quoted(dag_id)}/check"

    def dag(self, dag_id: str) -> str:
        """Return the page of the DAG in Airflow.

        Example: `/dags/orders`
        """
        return f"{self.airflow}/dags/{quoted(dag_id)}"

    def run(self, dag_id: str, run_id: str) -> str:
        """Return the page of the run in Airflow.

        Example: `/dags/orders/runs/nightly`
        """
        return f"{self.airflow}/dags/{quoted(dag_id)}/runs/{quoted(run_id)}"


_ENVIRONMENT = Environment(
    loader=FileSystemLoader(_FOLDER),
    autoescape=True,
    # A template that names a missing value fails in the tests, instead of showing nothing.
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
)
_ENVIRONMENT.filters.update(
    number=text.number, size=text.size, seconds=text.seconds, instant=text.instant, age=text.age
)
_ENVIRONMENT.globals.update(style=_STYLE, script=_SCRIPT)


def links_of(request: Request) -> Links:
    """Return the links for a page that answers a request.

    Example: `links_of(request).index` is `/tidegate/`.
    """
    # FastAPI's root path is that of the mounted application; Airflow's own pages are outside of it.
    return Links(str(request.scope.get("root_path", "")).rstrip("/"), root_path())


def render(request: Request, template: str, status: int = 200, **values: Any) -> HTMLResponse:
    """Return a page.

    Args:
        request: The request, for the links of the page.
        template: The name of a file in the folder of templates.
        status: The HTTP status.
        values: The variables of the template.
    """
    page = _ENVIRONMENT.get_template(template).render(links=links_of(request), **values)
    return HTMLResponse(page, status, _HEADERS)


def docs_page(path: str, content: bytes) -> Response:
    """Return a file of Data Docs, unchanged.

    Args:
        path: The path of the file; its ending must be `css`, `html` or `json`.
        content: The bytes of the file.
    """
    return Response(content, media_type=_MEDIA_TYPES[path.rpartition(".")[2]], headers=_DOCS_HEADERS)
