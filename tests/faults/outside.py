"""What a fault does from outside: to the server, or to the step's process, while one of them stands still at
the fault's moment. See `OUTSIDE` in `fault`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from tests.faults.fault import Fault
from tests.faults.processes import Child
from tests.faults.server import KeptServer

_PATIENCE_S = 120.0


@dataclass(frozen=True)
class Outside:
    """One fault, which is to befall the step that `child` runs in the server. In `fired` it is noted."""

    fault: Fault
    server: KeptServer
    child: Child
    fired: Path

    def wait(self) -> int | None:
        """The step's exit code, or None when it stands still: as `Child.wait`, with the fault on its way."""
        if not self._moment_comes():
            return self.child.code
        outside = self.fault.outside
        assert outside is not None
        with self._EFFECTS[outside](self):
            with self.fired.open("a") as file:
                file.write(f"{self.fault.entry}\n")
            if outside == "pause_client":
                return None  # it is woken up when another run has finished
            if self.child.stopped:
                self.child.go_on()
            return self.child.wait()

    def _moment_comes(self) -> bool:
        """Return when it is there, and somebody stands still; False when the step ends without."""
        self._wait_until(lambda: self._is_noted() or self.child.poll())
        if not self._is_noted():
            return False
        self._wait_until(lambda: self._client_stands_still() or self.server.has_stopped_worker())
        return True

    def _is_noted(self) -> bool:
        return self.fired.exists() and self.fault.armed in self.fired.read_text().split()

    def _client_stands_still(self) -> bool:
        return self.child.poll() and self.child.stopped

    def _wait_until(self, is_true: Callable[[], bool]) -> None:
        deadline = time.monotonic() + _PATIENCE_S
        while not is_true():
            if time.monotonic() > deadline:
                self.child.kill()
                raise TimeoutError(f"{self.fault}: it did not come to that within {_PATIENCE_S:.0f} s")
            time.sleep(0.02)

    @contextmanager
    def _server_is_lost(self) -> Iterator[None]:
        self.server.kill()
        try:
            yield
        finally:
            self.server.start()

    @contextmanager
    def _server_is_restarted(self) -> Iterator[None]:
        self.server.stop()
        self.server.launch()
        try:
            yield
        finally:
            self.server.wait_ready()

    @contextmanager
    def _server_hangs(self) -> Iterator[None]:
        self.server.suspend()
        try:
            yield
        finally:
            self.server.resume()

    @contextmanager
    def _answer_is_lost(self) -> Iterator[None]:
        self.child.pause()
        before = self.server.ended_jobs()
        self.server.resume()
        self._wait_until(lambda: self.server.ended_jobs() > before)
        with self._server_is_lost():
            yield

    @contextmanager
    def _client_is_killed(self) -> Iterator[None]:
        self.child.kill()
        self.server.resume()
        yield

    @contextmanager
    def _client_stands(self) -> Iterator[None]:
        self.child.pause()
        self.server.resume()
        yield

    _EFFECTS: ClassVar[Mapping[str, Callable[[Outside], AbstractContextManager[None]]]] = {
        "lose_server": _server_is_lost,
        "restart_server": _server_is_restarted,
        "hang_server": _server_hangs,
        "lose_answer": _answer_is_lost,
        "kill_client": _client_is_killed,
        "pause_client": _client_stands,
    }
