"""A process that publishes a share of an outbox; `producers` starts it.

What it is to do comes through the connection whose descriptor is its argument; through the same it says now
and then that it lives, and at last how it went. When the other end is gone, so is this process. Should it
live on all the same, because somebody has stopped it, say, then it is fenced by whoever publishes next.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from contextlib import suppress
from multiprocessing.connection import Connection
from typing import Any

from tidegate.errors import TidegateError
from tidegate.failpoints import FailpointRaised
from tidegate.steps.producers import Share

BEAT_SECONDS = 5.0


def main() -> None:
    """Publish the share that is given, and say how many records that was, or the error."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # it is for the process that started this one
    connection: Connection[Any, Any] = Connection(int(sys.argv[1]))
    share: Share = connection.recv()
    speaking = threading.Lock()
    threading.Thread(target=_keep_in_touch, args=(connection, speaking), daemon=True).start()
    outcome = _outcome(share)
    with speaking:
        connection.send(outcome)


def _outcome(share: Share) -> int | Exception:
    try:
        return share.publish()
    except (TidegateError, FailpointRaised) as error:
        return error


def _keep_in_touch(connection: Connection[Any, Any], speaking: threading.Lock) -> None:
    """Say now and then that this process lives, and end it as soon as nobody is there to hear."""
    with suppress(OSError):
        while not connection.poll(BEAT_SECONDS):
            with speaking:
                connection.send(None)
    os._exit(1)


if __name__ == "__main__":
    main()
