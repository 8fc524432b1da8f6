"""Print results, as tables for people and JSON for programs; and write new files for a user."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import date, datetime, timezone
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from tidegate.errors import PipelineInvalid, SettingsInvalid, TidegateError
from tidegate.numerals import counted

if TYPE_CHECKING:
    import pyarrow as pa
    from rich.console import Console
    from rich.status import Status
    from rich.table import Table


class Terminal:
    """Standard output, or standard error, of a command.

    rich is imported with the first line: `--help` and JSON need no tables and colours.

    Args:
        options: The options of rich's `Console`.
    """

    def __init__(self, **options: Any) -> None:
        self._options = options

    @cached_property
    def console(self) -> Console:
        from rich.console import Console

        return Console(**self._options)

    def print(self, text: Any = "", **options: Any) -> None:
        """Print a text or a table. `options`: those of rich's `Console.print`."""
        self.console.print(text, **options)

    def print_table(self, made: Table, least: int = 0) -> None:
        """Print a table. `least`: the width that it needs; without a terminal it gets that."""
        self.print(made, width=None if _HAS_TERMINAL else max(_WIDTH, least))

    def status(self, text: str) -> Status:
        """Return a context manager that shows a live line."""
        return self.console.status(text)


_HAS_TERMINAL = sys.stdout.isatty()
_WIDTH = 160
"""Where there is no terminal, tables fold longer sentences; a table that needs more for the rest is wider."""
_UNFOLDED = 24
"""A column that needs no more than this is not folded, such as one of numbers or instants."""
out = Terminal(soft_wrap=False, width=None if _HAS_TERMINAL else 100_000)
err = Terminal(stderr=True, soft_wrap=True)

Rows = Sequence[Mapping[str, Any]]
INSTANTS = frozenset(
    ("timestamp", "at", "due_at", "window_start", "window_end", "first_timestamp_ms", "last_timestamp_ms")
)
"""Columns of epoch milliseconds, which people see as times."""
_SPARSE = frozenset(("window_start", "window_end", "digest", "pending", "due_at"))


def show(rows: Rows, json_wanted: bool, title: str = "", empty: str = "Nothing.") -> None:
    """Print rows as a table, or as one JSON array.

    Args:
        title: The line above a table.
        empty: It is printed in place of a table without rows.
    """
    # plain print: rich would wrap lines and colour values
    if json_wanted:
        print(json.dumps(list(rows), default=_plain, ensure_ascii=False))
    elif not rows:
        out.print(empty)
    else:
        _print_table(rows, title)


def show_rows_of(rows: pa.Table, columns: Sequence[str], limit: int, json_wanted: bool) -> None:
    """Print the first rows of an Arrow table.

    Args:
        columns: The columns, in order; those that `rows` does not have are left out.
        limit: The number of rows; 0 for all.
        json_wanted: Print one JSON array; otherwise a table for people, without columns that are rarely used
            and empty.
    """
    names = [name for name in columns if name in rows.column_names]
    if not json_wanted:
        names = [name for name in names if name not in _SPARSE or rows[name].null_count < len(rows[name])]
    shown = rows.slice(0, limit) if limit and names else rows
    is_cut = 0 < limit < rows.num_rows
    title = counted(rows.num_rows, "row") + (f", the first {limit}" if is_cut else "")
    if json_wanted and is_cut:
        # Not among the rows: programs read these.
        warn(f"These are the first {limit} of {rows.num_rows} rows: --limit 0 prints all.")
    show(shown.select(names).to_pylist(), json_wanted, title)


def show_object(document: Mapping[str, Any]) -> None:
    """Print one JSON object."""
    print(json.dumps(document, default=_plain, ensure_ascii=False))


def show_cut(rows: Rows, cut: Collection[str], title: str) -> None:
    """Print rows as a table with one line each.

    Args:
        cut: The columns that share the width that the others leave.
        title: The line above the table.
    """
    if not rows:
        out.print("Nothing.")
        return
    from rich.text import Text

    made = _table(title)
    for name, value in rows[0].items():
        number = isinstance(value, int) and name not in INSTANTS
        made.add_column(name, justify="right" if number else "left", no_wrap=name not in cut)
    for row in rows:
        cells = (_text(name, value).replace("\n", "\\n") for name, value in row.items())
        made.add_row(*(Text(cell, no_wrap=True, overflow="ellipsis") for cell in cells))
    out.print_table(made)


def say(text: str) -> None:
    """Print a text as it is, one line however long."""
    out.print(text, markup=False, highlight=False, soft_wrap=True)


def warn(text: str) -> None:
    """Print a warning to standard error, in yellow."""
    err.print(text, style="yellow", markup=False, highlight=False)


def show_lines(rows: Iterable[Mapping[str, Any]]) -> None:
    """Print one JSON object per line."""
    for row in rows:
        print(json.dumps(row, default=_plain, ensure_ascii=False))


def table(rows: Rows, title: str = "") -> Table:
    """Return a table with the first row's keys as its head, numbers to the right, and instants as ISO times.
    A row may lack some of the keys.
    """
    return _table_of(rows, _widths(rows), title)


def _table_of(rows: Rows, widths: Mapping[str, int], title: str) -> Table:
    from rich.text import Text

    made = _table(title)
    for name, value in rows[0].items():
        number = isinstance(value, (int, float)) and not isinstance(value, bool) and name not in INSTANTS
        justify: Literal["left", "right"] = "right" if number else "left"
        made.add_column(name, justify=justify, overflow="fold", no_wrap=widths[name] <= _UNFOLDED)
    for row in rows:
        # as Text, since values of records can look like markup
        made.add_row(*(Text(_text(name, row.get(name))) for name in rows[0]))
    return made


def _print_table(rows: Rows, title: str) -> None:
    """Print a table; in a terminal that is too narrow for it, each row as a block."""
    widths = _widths(rows)
    least = sum(max(len(name), min(width, _UNFOLDED)) + 2 for name, width in widths.items()) - 2
    if _HAS_TERMINAL and least > out.console.width:
        _print_blocks(rows, title)
    else:
        out.print_table(_table_of(rows, widths, title), least)


def _widths(rows: Rows) -> dict[str, int]:
    """Return the width that each column needs if nothing is folded."""
    from rich.cells import cell_len

    texts = {name: [name, *(_text(name, row.get(name)) for row in rows)] for name in rows[0]}
    return {
        name: max(cell_len(line) for text in column for line in text.split("\n"))
        for name, column in texts.items()
    }


def _print_blocks(rows: Rows, title: str) -> None:
    """Print each row as a block with a line per column."""
    from rich.text import Text

    if title:
        say(title)
    for row in rows:
        made = _table()
        made.show_header = False
        made.add_column(style="bold", no_wrap=True)
        made.add_column(overflow="fold")
        for name, value in row.items():
            made.add_row(name, Text(_text(name, value)))
        out.print()
        out.print_table(made)


def _table(title: str = "") -> Table:
    from rich.table import Table

    return Table(title=title or None, title_justify="left", header_style="bold", box=None, pad_edge=False)


def iso_instant(epoch_ms: int) -> str:
    """Return an instant as text; the milliseconds for a year that no calendar has.

    Example::

        iso_instant(1769855400000)  # "2026-01-31T10:30:00.000Z"
    """
    try:
        instant = datetime.fromtimestamp(epoch_ms / 1000, tz=timezone.utc)
    except (ValueError, OverflowError, OSError):
        return str(epoch_ms)
    return instant.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def fail(error: BaseException) -> int:
    """Print an error in red, without a traceback. Return the exit code of its class; 130 for Ctrl-C."""
    if isinstance(error, KeyboardInterrupt):
        err.print(f"\n{error}", style="yellow", markup=False)
        return 130
    if isinstance(error, PipelineInvalid):
        for problem in error.problems:
            err.print(str(problem), style="red", markup=False, highlight=False)
    else:
        err.print(f"{type(error).__name__}: {error}", style="red", markup=False, highlight=False)
    return error.exit_code if isinstance(error, TidegateError) else 1


@contextmanager
def steps_shown(quiet: bool) -> Iterator[Callable[[str], None]]:
    """Show the current step: a live line in a terminal, otherwise plain lines; nothing if `quiet`.

    Example::

        with steps_shown(quiet=as_json) as progress:
            progress("compute")
    """
    if quiet:
        yield lambda _: None
    elif sys.stderr.isatty():
        with err.status("…") as status:
            yield lambda step: status.update(step)
    else:
        yield lambda step: print(f"tidegate: {step}", file=sys.stderr, flush=True)


def _text(name: str, value: Any) -> str:
    """Return the text of a column's value for people."""
    return _cell(iso_instant(value) if name in INSTANTS and isinstance(value, int) else value)


def _cell(value: Any) -> str:
    if value is None:
        return "-"
    if isinstance(value, float):
        return f"{value:.1f}"
    if isinstance(value, (dict, list)):
        return json.dumps(value, default=_plain, ensure_ascii=False)
    text = value.decode(errors="backslashreplace")[:200] if isinstance(value, bytes) else str(value)
    # escape control characters, which a terminal would execute
    return "".join(c if c.isprintable() or c == "\n" else c.encode("unicode_escape").decode() for c in text)


def _plain(value: Any) -> Any:
    """Return a value that JSON cannot express as text."""
    if isinstance(value, bytes):
        return value.decode(errors="backslashreplace")
    if isinstance(value, (datetime, date)):
        return value.isoformat()
    return str(value)


def require_new(files: Iterable[Path], fix: str) -> None:
    """Raise SettingsInvalid if one of the files exists. `fix` says what the user can do then."""
    existing = [str(file) for file in files if file.exists()]
    if existing:
        verb = "exists" if len(existing) == 1 else "exist"
        raise SettingsInvalid(f"{', '.join(existing)} already {verb}", fix)


def write_texts(texts: Mapping[Path, str]) -> None:
    """Write a text into each file, and make the folders that are missing.

    Raises SettingsInvalid if a file cannot be written.
    """
    for file, text in texts.items():
        try:
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text, encoding="utf-8")
        except OSError as error:
            raise SettingsInvalid(
                f"{file} cannot be written: {error.strerror}", "Make its folder writable, or name another."
            ) from error
