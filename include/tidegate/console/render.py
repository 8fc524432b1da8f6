"""Render templates to responses. Values are escaped, and headers limit what a browser may load or frame."""

from __future__ import annotations

import base64
import hashlib
import shlex
from functools import partial
from pathlib import Path
from typing import Any

from fastapi import Request
from fastapi.responses import HTMLResponse, Response
from jinja2 import Environment, FileSystemLoader, StrictUndefined

from tidegate.console.formatting import age, duration, instant, number, rate, seconds, size
from tidegate.console.host import host_of
from tidegate.console.links import Links
from tidegate.inspect.words import HAPPENINGS, decision_text, json_text, state_texts

_FOLDER = Path(__file__).parent / "templates"
_STYLE = (_FOLDER / "style.css").read_text()
_SCRIPT = "".join((_FOLDER / name).read_text() for name in ("frame.js", "refresh.js"))
_MEDIA_TYPES = {"css": "text/css", "html": "text/html", "json": "application/json"}
_ENVIRONMENT = Environment(
    loader=FileSystemLoader(_FOLDER),
    autoescape=True,
    # A template that names a missing value fails in the tests, instead of showing nothing.
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
)


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
    # No script runs, and nothing is loaded from other hosts.
    "Content-Security-Policy": "default-src 'none'; style-src 'self'; form-action 'none'; base-uri 'none'; "
    "frame-ancestors 'self'"
}


_ENVIRONMENT.filters.update(number=number, size=size, seconds=seconds, instant=instant, age=age)
_ENVIRONMENT.filters.update(duration=duration, rate=rate, shell=shlex.quote)
_ENVIRONMENT.filters.update(happening=HAPPENINGS.__getitem__, json=json_text)
_ENVIRONMENT.filters.update(decision=decision_text, state=partial(state_texts, instant=instant))


_ENVIRONMENT.globals.update(style=_STYLE, script=_SCRIPT)


def links_of(request: Request) -> Links:
    """Return the links for a page that answers a request.

    Example: `links_of(request).index` is `/tidegate/`.
    """
    # FastAPI's root path is that of the mounted application; Airflow's own pages are outside.
    return Links(str(request.scope.get("root_path", "")).rstrip("/"), host_of(request).airflow)


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


def document(template: str, **values: Any) -> str:
    """Return a page that is no answer to a request, and has no links.

    Args:
        template: The name of a file in the folder of templates.
        values: The variables of the template.
    """
    return _ENVIRONMENT.get_template(template).render(**values)


def docs_page(path: str, content: bytes) -> Response:
    """Return a file of Data Docs, unchanged.

    Args:
        path: The path of the file; its ending must be `css`, `html` or `json`.
        content: The bytes of the file.
    """
    return Response(content, media_type=_MEDIA_TYPES[path.rpartition(".")[2]], headers=_DOCS_HEADERS)
