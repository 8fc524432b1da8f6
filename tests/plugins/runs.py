"""When Airflow has made the DagRuns of these tests, and what that adds to their ids in the ledger."""

from __future__ import annotations

from datetime import datetime, timezone

CREATED = datetime(2026, 1, 1, tzinfo=timezone.utc)
CREATED_JSON = "2026-01-01T00:00:00Z"
SUFFIX = "@2026-01-01T00:00:00+00:00"
