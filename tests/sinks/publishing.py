"""Publish batch 1 of a stream whose settings are in the environment, in a process that a test kills."""

from __future__ import annotations

from tidegate.app import App
from tidegate.batch import publish_batch
from tidegate.ledger import Stream

if __name__ == "__main__":
    app = App.from_environment()
    plan = app.ledger.plan(Stream("visitors", 1), 1)
    assert plan is not None
    publish_batch(app, plan, "test")
