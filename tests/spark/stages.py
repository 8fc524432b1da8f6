"""Stages that several tests of the engine declare."""

from __future__ import annotations

CHANGES = {
    "name": "changes",
    "select": {"open": "quantity > 0"},
    "reduce": "latest",
    "emit": {"on": "change"},
}
COUNTED = {"name": "counted", "reduce": {"changes": "count(*)"}, "emit": {"on": "update"}}
