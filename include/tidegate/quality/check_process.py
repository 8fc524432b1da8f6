"""The program that `CheckBeside` starts: answers what comes by standard input, until that ends."""

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
    """A pickled Audit is answered by its pickled Verdict, or by the TidegateError
    that it raised. Only answers go to standard output.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for who has started this, and goes to both
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "wb")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())

    gc.disable()  # what is imported stays: to look for garbage in it takes a tenth of the imports' time
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
    os._exit(0)  # at once: there is nothing to end
