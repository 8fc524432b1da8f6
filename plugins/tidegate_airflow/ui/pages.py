"""Render templates to responses. Values are escaped, and headers limit what a browser may load or frame."""

from __future__ import annotations

import base64
import hashlib
import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from math import floor, log10
from pathlib import Path
from typing import Any

from fastapi import Request
from fastapi.responses import HTMLResponse, Response
from jinja2 import Environment, FileSystemLoader, StrictUndefined

from tidegate.inspect import HistoryEntry
from tidegate.ledger import Stream
from tidegate_airflow.operators import quoted, root_path

NOTHING = "-"
_UNITS = ((86_400, "d"), (3_600, "h"), (60, "min"), (1, "s"))
WIDTH, HEIGHT = 960, 180
LEFT, RIGHT, TOP, BOTTOM = 64, 8, 8, 24
_GAP = 0.2
_WIDEST = 24.0
_FOLDER = Path(__file__).parent / "templates"
_STYLE = (_FOLDER / "style.css").read_text()
_SCRIPT = (_FOLDER / "frame.js").read_text()
_MEDIA_TYPES = {"css": "text/css", "html": "text/html", "json": "application/json"}
_ENVIRONMENT = Environment(
    loader=FileSystemLoader(_FOLDER),
    autoescape=True,
    # A template that names a missing value fails in the tests, instead of showing nothing.
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
)


def number(value: float | None) -> str:
    """Return a number without a fraction, with separators of thousands.

    Example: `number(12345.0)` is `12,345`.
    """
    return NOTHING if value is None else f"{value:,.0f}"


def size(value: float | None) -> str:
    """Return a number of bytes in a decimal unit.

    Example: `size(1_234_567)` is `1.2 MB`.
    """
    if value is None:
        return NOTHING
    for unit in ("B", "kB", "MB", "GB"):
        if abs(value) < 1000:
            return f"{value:,.0f} {unit}" if unit == "B" else f"{value:,.1f} {unit}"
        value /= 1000
    return f"{value:,.1f} TB"


def seconds(value: float | None) -> str:
    """Return seconds with one digit behind the point, without a unit.

    Example: `seconds(0.42)` is `0.4`.
    """
    return NOTHING if value is None else f"{value:,.1f}"


def duration(value_s: float | None) -> str:
    """Return seconds in the largest unit of which there are at least two.

    Example: `duration(90)` is `90 s`, `duration(129_600)` is `36 h`.
    """
    if value_s is None:
        return NOTHING
    for length, unit in _UNITS:
        # From two of a unit on, rounding changes the value by at most a quarter.
        if abs(value_s) >= 2 * length:
            return f"{value_s / length:,.0f} {unit}"
    return f"{value_s:,.1f} s"


def instant(epoch_ms: float | None) -> str:
    """Return an instant in UTC; its number of milliseconds if Python has no such year.

    Example: `instant(0)` is `1970-01-01 00:00:00`.
    """
    if epoch_ms is None:
        return NOTHING
    try:
        at = datetime.fromtimestamp(epoch_ms / 1000, timezone.utc)
    except (ValueError, OverflowError, OSError):  # a record may claim any time
        return f"{epoch_ms:.0f} ms"
    return at.isoformat(sep=" ", timespec="seconds").removesuffix("+00:00")


def age(epoch_ms: float | None) -> str:
    """Return how long ago an instant was; 0 if it is in the future, by a clock that is ahead."""
    return NOTHING if epoch_ms is None else duration(max(0.0, time.time() - epoch_ms / 1000))


@dataclass(frozen=True)
class Bar:
    """The bar of a batch: its emissions, and on top of them the suppressed values, in units of the
    drawing.
    """

    x: float
    width: float
    emitted_y: float
    emitted_height: float
    suppressed_y: float
    suppressed_height: float
    title: str


@dataclass(frozen=True)
class Chart:
    """The chart of batches from left to right, oldest first. `ticks` are (y, label); `first` and `last` are
    times.
    """

    bars: tuple[Bar, ...]
    ticks: tuple[tuple[float, str], ...]
    first: str
    last: str
    width: int = WIDTH
    height: int = HEIGHT
    left: int = LEFT
    right: int = WIDTH - RIGHT
    bottom: int = HEIGHT - BOTTOM


def chart_of(newest_first: Sequence[HistoryEntry]) -> Chart | None:
    """Return the chart of emitted and suppressed values; None if no batch has counts.

    Args:
        newest_first: Batches of a stream; those without counts are left out.
    """
    entries = [entry for entry in reversed(newest_first) if entry.report is not None and entry.report.counts]
    values = [_emitted_and_suppressed(entry) for entry in entries]
    highest = max((emitted + suppressed for emitted, suppressed in values), default=0)
    if not highest:
        return None
    top = _round_up(highest)
    per_record = (HEIGHT - TOP - BOTTOM) / top
    slot = (WIDTH - LEFT - RIGHT) / len(entries)
    bars = tuple(
        _bar(entry, LEFT + slot * at, slot, per_record, *value)
        for at, (entry, value) in enumerate(zip(entries, values, strict=True))
    )
    ticks = tuple((HEIGHT - BOTTOM - top * part * per_record, number(top * part)) for part in (0, 0.5, 1))
    return Chart(bars, ticks, _when(entries[0]), _when(entries[-1]) if len(entries) > 1 else "")


def _bar(
    entry: HistoryEntry, x: float, slot: float, per_record: float, emitted: float, suppressed: float
) -> Bar:
    # A few batches would otherwise be bars as wide as the page.
    width = min(slot * (1 - _GAP), _WIDEST)
    base = HEIGHT - BOTTOM
    title = f"batch {entry.seq}, {_when(entry)}: {number(emitted)} emitted, {number(suppressed)} suppressed"
    return Bar(
        x=x + (slot - width) / 2,
        width=width,
        emitted_y=base - emitted * per_record,
        emitted_height=emitted * per_record,
        suppressed_y=base - (emitted + suppressed) * per_record,
        suppressed_height=suppressed * per_record,
        title=title,
    )


def _emitted_and_suppressed(entry: HistoryEntry) -> tuple[float, float]:
    assert entry.report is not None
    return entry.report.counts.get("emitted", 0), entry.report.suppressed


def _when(entry: HistoryEntry) -> str:
    return instant(entry.committed_at_ms) if entry.committed_at_ms is not None else "not committed"


def _round_up(value: float) -> float:
    """Return the next round number whose half is a whole number."""
    power = 10.0 ** floor(log10(max(value, 2)))
    return max(2.0, next(step * power for step in (1, 2, 4, 6, 8, 10) if step * power >= value))


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


_ENVIRONMENT.filters.update(number=number, size=size, seconds=seconds, instant=instant, age=age)


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
