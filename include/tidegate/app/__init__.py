"""What protocol, maintenance and inspection stand on: composition root, lease, manifests, tables."""

from tidegate.app.lease import check_lease, leased
from tidegate.app.root import LONG_DONE, App, planned_for, stream_of

__all__ = ["LONG_DONE", "App", "check_lease", "leased", "planned_for", "stream_of"]
