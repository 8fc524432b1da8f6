"""Turn signals that end a process into exceptions, so that it releases what it holds, such as a lease."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager


class Terminated(KeyboardInterrupt):
    """SIGTERM has ended the process.

    It is a KeyboardInterrupt, because py4j drops its connection only on that. On any other exception PySpark
    waits for the end of the job.
    """

    exit_code = 128 + signal.SIGTERM


def raise_on_sigterm() -> None:
    """Let SIGTERM raise Terminated in the main thread.

    By default SIGTERM ends Python at once, and a lease that the process holds delays others until it runs
    out.
    """
    signal.signal(signal.SIGTERM, terminate)


def terminate(*_: object) -> None:
    """Raise Terminated. A second SIGTERM is ignored, so that it does not interrupt the clean-up."""
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    raise Terminated


@contextmanager
def same_interrupt() -> Iterator[None]:
    """Restore the handler of SIGINT after the block.

    PySpark replaces the handler with one that calls the JVM in the middle of another call. That call fails,
    and Ctrl-C looks as if the JVM had ended.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.getsignal(signal.SIGINT)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
