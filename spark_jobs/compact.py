"""spark-submit entry of compaction: `compact.py PIPELINE GENERATION`. Folds the state if that is due.

Settings, secrets among them, come from the environment. Exit codes: 0 done, 1 a retry can help, 2 it cannot.
"""

from __future__ import annotations

import sys

from tidegate.engine import open_session
from tidegate.errors import TidegateError
from tidegate.ledger import Stream
from tidegate.steps import App, compact_state


def main(pipeline: str, generation: str) -> int:
    """Compact the stream; print what it came to."""
    try:
        app = App.from_environment()
        stream = Stream(pipeline, int(generation))
        done = compact_state(app, stream, lambda: open_session(app.settings.jars), only_if_due=True)
    except TidegateError as error:
        print(f"tidegate: {type(error).__name__}: {error}", file=sys.stderr)
        return error.exit_code
    print(f"tidegate: {stream} batch {done.seq}: {done.note}, {done.before.rows} rows are {done.after.rows}")
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
