"""The program that `CheckBeside` starts: it answers audits from standard input until that closes."""

from __future__ import annotations

import gc
import os
import pickle
import signal
import sys
from contextlib import suppress
from typing import TYPE_CHECKING

from tidegate.errors import TidegateError

if TYPE_CHECKING:
    from tidegate.quality.verdict import Verdict


def main() -> None:
    """Answer each pickled Audit with its pickled Verdict, or with the TidegateError that it raised.

    Only answers go to standard output: everything that Python code prints goes to standard error.
    """
    # a terminal sends Ctrl-C to both processes; the one that started this one handles it
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "wb")
    # expectations and their modules may print, and a printed line would break the pickled answers
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())

    # modules are never garbage, and searching them for it takes a tenth of the imports' time
    gc.disable()
    from tidegate import frozen  # noqa: F401
    from tidegate.quality.gate import check

    gc.enable()

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
