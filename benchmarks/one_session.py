"""`tidegate run`, again and again in one process, and so in one Spark session.

Each line of the input names a pipeline, of which one batch is run; the answer is what the command prints.
"""

from __future__ import annotations

import sys

from tidegate.cli import cli


def main() -> None:
    for line in sys.stdin:
        cli.main(["run", line.strip(), "--json"], standalone_mode=False)
        sys.stdout.flush()


if __name__ == "__main__":
    main()
