"""Signals that end a process, as exceptions: what it holds, such as a stream's lease, is given back then."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager


class Terminated(KeyboardInterrupt):
    """SIGTERM has ended the process. A kind of Ctrl-C, since py4j drops its connection on that alone: on any
    other exception PySpark first waits for the end of the job.
    """

    exit_code = 128 + signal.SIGTERM


def raise_on_sigterm() -> None:
    """Let SIGTERM raise Terminated in the main thread.

    By default it ends Python at once, and a lease that the process holds keeps others waiting until it runs
    out.
    """
    signal.signal(signal.SIGTERM, terminate)


def terminate(*_: object) -> None:
    """Raise Terminated. A second SIGTERM does not interrupt what is given back."""
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    raise Terminated


@contextmanager
def same_interrupt() -> Iterator[None]:
    """Keep the handler of SIGINT that is there before.

    PySpark replaces it by one that calls the JVM in the middle of another call. That fails, and Ctrl-C looks
    like a JVM that has ended.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.getsignal(signal.SIGINT)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


__all__ = ["Terminated", "raise_on_sigterm", "same_interrupt", "terminate"]
