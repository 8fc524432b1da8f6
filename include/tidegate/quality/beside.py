"""The quality check in a separate process, which imports Great Expectations while a batch is computed.

The import takes as long as the rest of a small batch. The process ends when its standard input closes, so it
never outlives the process that started it, even if that process is killed. It runs this module as its
program: it answers audits from standard input until that closes.
"""

from __future__ import annotations

import gc
import os
import pickle
import signal
import sys
from contextlib import suppress
from subprocess import PIPE, Popen
from typing import TYPE_CHECKING

from tidegate.errors import QualityLost, TidegateError
from tidegate.garbage import not_collected

if TYPE_CHECKING:
    from tidegate.quality.audit import Audit
    from tidegate.quality.verdict import Verdict

_YIELD = "yield"
"""The argument with which the process yields to others."""
_NICENESS = 10
"""With it, a process gets a tenth of a processor that another one uses, too."""


class CheckBeside:
    """Run `gate.check` in another process. Use it as a context manager, which ends the process.

    Example::

        with CheckBeside() as beside:
            beside.start()  # the imports begin
            ...             # compute the batch
            verdict = beside.check(audit)
    """

    def __init__(self) -> None:
        self._process: Popen[bytes] | None = None

    def __enter__(self) -> CheckBeside:
        return self

    def __exit__(self, *_: object) -> None:
        if self._process is not None:
            # kill, since the process may still be importing, and would not see that its input is closed
            self._process.kill()
            self._process.communicate()

    def start(self, *, yields: bool = False) -> None:
        """Start the process, which begins its imports. Does nothing if the process is already running.

        `yields`: other processes have the processors first, as long as they use them.
        """
        if self._process is None:
            command = [sys.executable, "-m", "tidegate.quality.beside", *([_YIELD] if yields else [])]
            self._process = Popen(command, stdin=PIPE, stdout=PIPE)

    def check(self, audit: Audit) -> Verdict:
        """Evaluate an audit in the process, and return its verdict. See `gate.check`.

        Raises QualityLost if the process ends before it answers, and each error that `gate.check` raises.
        """
        self.start()
        process = self._process
        assert process is not None
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            # The audit of a batch names its files and has no rows, so little goes through the pipe.
            pickle.dump(audit, process.stdin)
            process.stdin.flush()
            answer: Verdict | TidegateError = pickle.load(process.stdout)
        except (EOFError, BrokenPipeError, pickle.UnpicklingError) as error:
            raise QualityLost(
                f"The process of the quality check ended with exit code {process.wait()}",
                "Run again. If the error repeats, give the machine more memory, or read the output above.",
            ) from error
        if isinstance(answer, TidegateError):
            raise answer
        return answer


def main() -> None:
    """Answer each pickled Audit with its pickled Verdict, or with the TidegateError that it raised.

    Only answers go to standard output: everything that Python code prints goes to standard error.
    """
    if _YIELD in sys.argv:
        os.nice(_NICENESS)
    # a terminal sends Ctrl-C to both processes; the one that started this one handles it
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "wb")
    # expectations and their modules may print, and a printed line would break the pickled answers
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())

    # modules are never garbage, and searching them for it takes a tenth of the imports' time
    with not_collected():
        from tidegate.quality.gate import check
    gc.freeze()  # half a million objects: each full collection would search them for a third of a second

    with suppress(EOFError):
        while True:
            audit = pickle.load(sys.stdin.buffer)
            try:
                answer: Verdict | TidegateError = check(audit)
            except TidegateError as error:
                answer = error
            pickle.dump(answer, answers)
            answers.flush()


if __name__ == "__main__":
    main()
    os._exit(0)  # without the interpreter's cleanup, which takes time and has nothing to clean up
