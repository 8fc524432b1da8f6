"""Wait less for servers that a test knows to be down."""

from __future__ import annotations

import pytest

from tidegate.kafka import log


def give_up_soon(patch: pytest.MonkeyPatch, seconds: float = 3) -> None:
    """Let Kafka's clients give up after some seconds, not 15, if no broker answers."""
    patch.setattr(log, "_API_TIMEOUT_MS", int(seconds * 1000))
