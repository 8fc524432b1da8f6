"""A shop whose console has something on every page: pipelines in all conditions, and two generations."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

from fastapi.routing import APIRoute

from tests.generations.two_generations import Beside
from tests.seeded import Seeded, emission, unusable
from tidegate.console.local import LocalHost
from tidegate.console.routes import create_app
from tidegate.errors import QualityFailed

KEY = "s<1>"
PLACES = {"dag_id": "availability", "seq": "3", "run_id": "run-3"}
"""Path parameter -> an example that the shop has."""
QUERIES = {"/pipelines/{dag_id}/keys": f"?key={quote(KEY)}&records=3"}
"""Route -> a query without which its page is almost empty."""
NOT_OURS = "/pipelines/{dag_id}/docs/{path:path}"
"""Pages of Great Expectations: their markup is not tidegate's."""
MORE = (
    "/?only=failing",
    "/?q=nothing",
    "/pipelines/rate_limited",
    "/pipelines/typo",
    "/pipelines/old",
    "/pipelines/quiet_users",
    "/pipelines/rate_limited/batches/3",
    "/pipelines/screw_fastening/graph",
    "/pipelines/availability/keys",
    "/pipelines/availability/keys?key=nobody",
    "/pipelines/availability/actions?record=stock/0/2001",
    "/pipelines/visitors/emissions",
    "/pipelines/visitors/generations?compare=1",
    "/pipelines/visitors/actions",
    "/pipelines/quiet_users/runs/nobody",
    "/pipelines/quiet_users/docs/index.html",
    "/pipelines/quiet_users/keys?before=-1",
    "/pipelines/nobody",
)
"""More states of these pages."""


def routes() -> Iterator[APIRoute]:
    """Yield the routes of all pages, so that a new page takes part in every test of all pages."""
    for route in create_app(LocalHost()).routes:
        if isinstance(route, APIRoute):
            yield route


def pages() -> list[str]:
    """Return the address of the page of each route in the shop."""
    return [
        re.sub(r"{(\w+)(:path)?}", lambda name: PLACES[name[1]], route.path) + QUERIES.get(route.path, "")
        for route in routes()
        if route.path != NOT_OURS
    ]


@dataclass(frozen=True)
class Shop:
    """The home of the shop's pipelines."""

    seeded: Seeded

    @classmethod
    def open(cls, folder: Path) -> Shop:
        """Write pipelines, batches, emissions and quarantine into a folder."""
        beside = Beside(folder, "  - {kind: sql, table: seconds}")
        beside.fill()
        beside.promote(beside.new)
        beside.decide(beside.old, 3, [("a", 3), ("d", None)])
        seeded = Seeded(folder, now=time.time() - 3_600, environment=beside.old.environment)
        for name in ("availability", "quiet_users", "rate_limited", "screw_fastening"):
            seeded.add_sample(name)
        _add_batches(seeded)
        _add_troubles(seeded)
        return cls(seeded)


def _add_batches(seeded: Seeded) -> None:
    pipeline = seeded.app.pipeline("availability")
    counts = {"used": 997.0, "emitted": 100.0, "idempotent-update-skip": 880.0, "state-rows": 40.0}
    counts |= {"expired-window-record-drop": 12.0}
    rows = [unusable(2001, b"<script>alert(1)</script>", seq=3), {**unusable(2002, b"\xff" * 300, seq=3)}]
    emissions = [
        [emission(KEY, 7, reason="new"), emission("s2", 1, 1, "new")],
        [emission(KEY, None, reason="deleted"), emission("s2", 2, 1)],
        [emission(KEY, 9, reason="new"), emission("s2", 3, 1)],
    ]
    for seq, outbox in enumerate(emissions, 1):
        quarantine = [{**row, "key": KEY.encode()} for row in rows] if seq == 3 else []
        seeded.batch(pipeline, seq, counts, quarantine, passed=seq != 2, outbox=outbox)
    held_back = {"suppression-buffer-records": 38.0, "suppression-buffer-bytes": 9_400.0}
    seeded.day(seeded.app.pipeline("screw_fastening"), 2, **held_back)
    seeded.day(seeded.app.pipeline("rate_limited"), 2, **held_back)


def _add_troubles(seeded: Seeded) -> None:
    """Add a batch that fails, a file with mistakes, and a pipeline without a file."""
    error = QualityFailed("Batch 3 does not pass its suite: 3 unexpected", "Correct the data.")
    seeded.fail(seeded.app.pipeline("rate_limited"), 3, "validate", error)
    folder = seeded.home / "pipelines"
    text = (folder / "availability.yaml").read_text()
    (folder / "typo.yaml").write_text(
        text.replace("pipeline: availability", "pipeline: typo").replace("reduce: latest", "reduce: lastest")
    )
    seeded.day(seeded.add_sample("availability", "old", _named_old), 1)
    (folder / "old.yaml").unlink()
    # what the next batch is planned with is not what the last one was planned with
    (folder / "screw_fastening.yaml").write_text("# edited\n" + (folder / "screw_fastening.yaml").read_text())


def _named_old(text: str) -> str:
    return text.replace("pipeline: availability", "pipeline: old")
