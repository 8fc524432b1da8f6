"""A StatsD that keeps what Airflow sends it, packet by packet."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import contextmanager


class StatsD:
    """A UDP socket of this machine."""

    def __init__(self, udp: socket.socket) -> None:
        self._udp = udp
        self._metrics: dict[str, str] = {}

    @property
    def settings(self) -> dict[str, str]:
        """Return the environment variables that make Airflow send here."""
        host, port = self._udp.getsockname()
        return {
            "AIRFLOW__METRICS__STATSD_ON": "True",
            "AIRFLOW__METRICS__STATSD_HOST": host,
            "AIRFLOW__METRICS__STATSD_PORT": str(port),
        }

    def metrics(self) -> dict[str, str]:
        """Name -> value and type, such as `7|g`, of all that has come so far; the last of each."""
        while True:
            try:
                packet = self._udp.recv(65536).decode()
            except BlockingIOError:
                return self._metrics
            self._metrics.update(line.split(":", 1) for line in packet.splitlines())


@contextmanager
def listening() -> Iterator[StatsD]:
    """One on a free port. Inside one machine a packet is there once it is sent."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as udp:
        udp.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4 << 20)
        udp.bind(("127.0.0.1", 0))
        udp.setblocking(False)
        yield StatsD(udp)
