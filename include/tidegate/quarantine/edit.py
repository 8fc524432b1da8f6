"""Edit records of quarantine with a SQL expression of DuckDB over their JSON value.

An expression sees one record as `value` (JSON) and `key` (BLOB). It cannot read files or the network.
"""

from __future__ import annotations

import atexit
import json
import os
import signal
import sys
import threading
from collections.abc import Callable
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from tidegate.errors import SettingsInvalid
from tidegate.quarantine.database import open_database
from tidegate.storage.quarantine_files import QUARANTINE

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

_EXAMPLE = (
    "Write one SQL expression of DuckDB over `value`, such as "
    "json_merge_patch(value, {'quantity': CAST(value->>'quantity' AS BIGINT)})."
)
_NUMBER = "__number"
_KEY_TYPES, _BYTES = ("VARCHAR", "BLOB"), "BLOB"
_POLL_SECONDS, _PATIENCE_SECONDS = 0.2, 5.0


class _Unfit(Exception):
    """An expression cannot be applied to a record."""


class RecordEdit:
    """SQL expressions that give each record another value, another key, or both.

    A value is the JSON of the expression's result, or a BLOB as it is; a key is text or a BLOB. Both
    expressions see the record as it was. A record without a value, and a result that is NULL, are refused: a
    missing field must not turn into a deletion. An edited file can remove a value.

    Args:
        value: None leaves the value as it is.
        key: None leaves the key as it is.

    Raises SettingsInvalid if a text is no expression that DuckDB can evaluate.

    Example::

        RecordEdit("json_merge_patch(value, {'id': CAST(value->>'id' AS BIGINT)})").apply(rows)
    """

    def __init__(self, value: str | None = None, key: str | None = None) -> None:
        self._expressions = {
            name: text for name, text in (("key", key), ("value", value)) if text is not None
        }
        if self._expressions:  # most replays have none, and need no database
            with open_database() as database:
                for name, text in self._expressions.items():
                    _edited(database.connection, _inputs([], []), name, text)

    def apply(self, rows: pa.Table) -> pa.Table:
        """Return quarantined rows with the edits applied.

        Raises SettingsInvalid at a record that an expression does not fit: the error names its position.
        """
        if not self._expressions:
            return rows
        values: list[str] = []
        for value in rows["value"].to_pylist():
            try:
                values.append(_exact_json(value))
            except _Unfit as error:
                raise _unfit(rows, len(values), error) from error
        inputs = _inputs(rows["key"].to_pylist(), values)
        # Each expression reads `inputs`, never `edited`: both see the record as it was.
        edited = rows
        with open_database() as database:
            for name, text in self._expressions.items():
                column = self._column(database.connection, rows, inputs, name, text)
                place = rows.schema.get_field_index(name)
                edited = edited.set_column(place, QUARANTINE.field(name), pa.array(column, pa.binary()))
        return edited

    def _column(
        self, connection: DuckDBPyConnection, rows: pa.Table, inputs: pa.Table, name: str, text: str
    ) -> list[bytes]:
        """Return the results for all rows. If there is none, look for the first row that has none."""
        if not inputs.num_rows:
            return []
        try:
            return _edited(connection, inputs, name, text)
        except _Unfit as error:
            if inputs.num_rows == 1:
                raise _unfit(rows, inputs[_NUMBER][0].as_py(), error) from error
        # DuckDB does not name the row that fails; halving finds the first one in few evaluations.
        middle = inputs.num_rows // 2
        parts = inputs.slice(0, middle), inputs.slice(middle)
        return [value for part in parts for value in self._column(connection, rows, part, name, text)]


def _inputs(keys: list[bytes | None], values: list[str]) -> pa.Table:
    columns = [
        pa.array(range(len(keys)), pa.int64()),
        pa.array(keys, pa.binary()),
        pa.array(values, pa.string()),
    ]
    return pa.table(columns, [_NUMBER, "key", "value"])


def _edited(connection: DuckDBPyConnection, inputs: pa.Table, name: str, text: str) -> list[bytes]:
    """Return the results of an expression as bytes. Ctrl-C and SIGTERM end it.

    Raises SettingsInvalid if DuckDB cannot evaluate it for any record, _Unfit if not for these.
    """
    return _interruptible(connection, lambda: _evaluated(connection, inputs, name, text))


def _evaluated(connection: DuckDBPyConnection, inputs: pa.Table, name: str, text: str) -> list[bytes]:
    import duckdb

    try:
        relation = connection.from_arrow(inputs).project(f"{_NUMBER}, key, CAST(value AS JSON) AS value")
        # parsed by itself, so that the text cannot end the expression and go on with something else
        result = relation.select(_NUMBER, duckdb.SQLExpression(text).alias("result"))
        kind = str(result.types[1])
        if name == "key" and kind not in _KEY_TYPES:
            raise SettingsInvalid(
                f"A key is text, and `{text}` gives {kind}",
                "Use `->>` in place of `->`, or CAST(… AS VARCHAR).",
            )
        if name == "value" and kind != _BYTES:
            # `to_json` of JSON would write its numbers anew: 1.50 as 1.5
            document = "result" if kind == "JSON" else "to_json(result)"
            result = result.project(f"{_NUMBER}, CAST({document} AS VARCHAR) AS result")
    except duckdb.Error as error:
        raise SettingsInvalid(f"DuckDB cannot evaluate `{text}`: {_first_line(error)}", _EXAMPLE) from error
    if not inputs.num_rows:
        return []
    try:
        fetched = result.order(_NUMBER).fetchall()
    except duckdb.Error as error:
        raise _Unfit(_first_line(error)) from error
    results = [value for _, value in fetched]
    # An expression can return several rows for one, such as `unnest`.
    if [number for number, _ in fetched] != inputs[_NUMBER].to_pylist():
        raise _Unfit("it does not give one result")
    if None in results:
        raise _Unfit("it gives NULL")
    if name == "value" and kind != _BYTES:
        for value in results:
            _require_json(value)
    return [value.encode() if isinstance(value, str) else value for value in results]


def _interruptible(connection: DuckDBPyConnection, call: Callable[[], list[bytes]]) -> list[bytes]:
    """Return what a call returns, and let Ctrl-C or SIGTERM end it.

    DuckDB looks for signals only between blocks of rows, and one block of a user's expression can take hours.
    So another thread computes, and this one waits.
    """
    results: list[list[bytes]] = []
    errors: list[Exception] = []
    # Not the thread's `join`: after a signal in it, Python 3.11 takes the thread for ended. The process would
    # then exit while DuckDB computes, and abort.
    ended = threading.Event()

    def run() -> None:
        try:
            results.append(call())
        except Exception as error:  # raised below, in the thread that waits
            errors.append(error)
        finally:
            ended.set()

    # a daemon, since a block that cannot be interrupted must not keep the process alive
    thread = threading.Thread(target=run, name="tidegate-edit", daemon=True)
    thread.start()
    try:
        while not ended.wait(_POLL_SECONDS):
            pass
    except KeyboardInterrupt as interrupt:
        connection.interrupt()
        if not ended.wait(_PATIENCE_SECONDS):
            atexit.register(_exit_at_once, getattr(interrupt, "exit_code", 128 + signal.SIGINT))
        raise
    if errors:
        raise errors[0]
    return results[0]


def _exit_at_once(code: int) -> None:
    """End the process without DuckDB's destructors, which abort it while another thread computes."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def _exact_json(value: bytes | None) -> str:
    """Return a value as text, if it is JSON that DuckDB keeps exactly. Raises _Unfit.

    DuckDB's functions read a number with a fraction as a double: more digits would be lost in silence.
    """
    if value is None:
        raise _Unfit("it has no value")
    try:
        text = value.decode()
        _EXACT_JSON.decode(text)
    except (ValueError, RecursionError) as error:
        raise _Unfit(f"its value is no JSON ({error})") from error
    return text


def _require_json(text: str) -> None:
    """Raise _Unfit for a result that is no JSON, such as NaN."""
    try:
        _STRICT_JSON.decode(text)
    except (ValueError, RecursionError) as error:
        raise _Unfit(f"the result is no JSON ({error})") from error


def _exact_float(text: str) -> float:
    # `repr` of a double is its shortest text: if that is another number, digits were lost.
    number = float(text)
    if Decimal(text) != Decimal(repr(number)):
        raise _Unfit(f"DuckDB would round its number {text}")
    return number


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"{name} is no JSON")


def _unique_names(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    document = dict(pairs)
    if len(document) < len(pairs):
        raise ValueError("a field is there twice")
    return document


_STRICT_JSON = json.JSONDecoder(parse_constant=_refuse_constant, object_pairs_hook=_unique_names)
_EXACT_JSON = json.JSONDecoder(
    parse_float=_exact_float, parse_constant=_refuse_constant, object_pairs_hook=_unique_names
)


def _unfit(rows: pa.Table, number: int, error: _Unfit) -> SettingsInvalid:
    place = "/".join(str(rows[name][number].as_py()) for name in ("topic", "partition", "offset"))
    return SettingsInvalid(
        f"The edit does not fit {place}: {error}",
        "Choose records that it fits with --reason and the other filters, correct the expression, or edit a "
        "file. Nothing was changed.",
    )


def _first_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0]
