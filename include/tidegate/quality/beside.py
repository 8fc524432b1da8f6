"""The quality check in a process of its own, which imports Great Expectations while a batch is computed.

That takes as long as all else of a small batch. The process ends when its standard input does, and so with
whoever has started it, however that ends.
"""

from __future__ import annotations

import pickle
import sys
from subprocess import PIPE, Popen
from typing import TYPE_CHECKING

from tidegate.errors import QualityLost, TidegateError

if TYPE_CHECKING:  # a client starts the process before it imports anything that takes time
    from tidegate.quality.audit import Audit
    from tidegate.quality.verdict import Verdict


class CheckBeside:
    """A context manager. `check` is that of `gate`, done there."""

    def __init__(self) -> None:
        self._process: Popen[bytes] | None = None

    def __enter__(self) -> CheckBeside:
        return self

    def __exit__(self, *_: object) -> None:
        if self._process is not None:  # nobody waits for it any more; its imports may still go on
            self._process.kill()
            self._process.communicate()

    def start(self) -> None:
        """Let the imports begin."""
        if self._process is None:
            command = [sys.executable, "-m", "tidegate.quality.check_process"]
            self._process = Popen(command, stdin=PIPE, stdout=PIPE)

    def check(self, audit: Audit) -> Verdict:
        """See `gate.check`. Raises QualityLost where the process ends."""
        self.start()
        process = self._process
        assert process is not None
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            pickle.dump(audit, process.stdin)
            process.stdin.flush()
            answer: Verdict | TidegateError = pickle.load(process.stdout)
        except (EOFError, BrokenPipeError, pickle.UnpicklingError) as error:
            raise QualityLost(
                f"The process of the quality check has ended with the exit code {process.wait()}",
                "Run again; if that repeats itself, give the machine more memory, or read what stands above.",
            ) from error
        if isinstance(answer, TidegateError):
            raise answer
        return answer
