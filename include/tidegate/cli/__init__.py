"""The `tidegate` command."""

from __future__ import annotations

import sys

from tidegate.cli.main import cli
from tidegate.cli.show import fail
from tidegate.errors import TidegateError


def main() -> None:
    """Entry point: exit code 0 done, 1 a retry can help, 2 it cannot, 130 interrupted."""
    try:
        cli.main(standalone_mode=False)
    except TidegateError as error:
        sys.exit(fail(error))
    except KeyboardInterrupt:
        sys.exit(fail(KeyboardInterrupt("Interrupted; nothing is half done, run it again to go on.")))


__all__ = ["cli", "main"]
