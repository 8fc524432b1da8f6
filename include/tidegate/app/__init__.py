"""What protocol, maintenance and inspection stand on: composition root, lease, manifests, tables."""

from tidegate.app.lease import check_lease, leased
from tidegate.app.root import LONG_DONE, App, OpenSession, planned_for, stream_of

__all__ = ["LONG_DONE", "App", "OpenSession", "check_lease", "leased", "planned_for", "stream_of"]
