"""The quality check in a process of its own, which imports Great Expectations while a batch is computed.

That takes as long as all else of a small batch. The process ends when its standard input does, and so with
whoever has started it, however that ends.
"""

from __future__ import annotations

import os
import pickle
import signal
import sys
from contextlib import suppress
from pathlib import Path
from subprocess import PIPE, Popen

import pyarrow as pa

from tidegate.errors import QualityLost, TidegateError
from tidegate.quality.verdict import Verdict


class CheckBeside:
    """A context manager. `check` is that of `gate`, done there."""

    def __init__(self) -> None:
        self._process: Popen[bytes] | None = None

    def __enter__(self) -> CheckBeside:
        return self

    def __exit__(self, *_: object) -> None:
        if self._process is not None:
            with suppress(BrokenPipeError):  # it has ended already
                self._process.communicate()

    def start(self) -> None:
        """Let the imports begin."""
        if self._process is None:
            command = [sys.executable, "-m", "tidegate.quality.beside"]
            self._process = Popen(command, stdin=PIPE, stdout=PIPE)

    def check(self, suite_file: Path, values: pa.Table, docs: Path, run: str) -> Verdict:
        """See `gate.check`. Raises QualityLost where the process ends."""
        self.start()
        process = self._process
        assert process is not None
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            pickle.dump((suite_file, values, docs, run), process.stdin)
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


def main() -> None:
    """Answer what comes by standard input. Only answers go to standard output."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for who has started this, and goes to both
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "wb")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())

    from tidegate import frozen  # noqa: F401
    from tidegate.quality.gate import check

    with suppress(EOFError):
        while True:
            asked = pickle.load(sys.stdin.buffer)
            try:
                answer: Verdict | TidegateError = check(*asked)
            except TidegateError as error:
                answer = error
            pickle.dump(answer, answers)
            answers.flush()


if __name__ == "__main__":
    main()
    os._exit(0)  # at once: there is nothing to end
