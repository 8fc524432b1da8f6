"""The composition root, and what batch steps, maintenance and inspection share: lease, manifests, tables."""

from tidegate.app.lease import check_lease, leased
from tidegate.app.root import LONG_DONE, App, OpenSession, expected_rows, planned_for, stream_of

__all__ = [
    "LONG_DONE",
    "App",
    "OpenSession",
    "check_lease",
    "expected_rows",
    "leased",
    "planned_for",
    "stream_of",
]
