"""Decoding alone, on one thread: records to rows by `tidegate.formats`, beside a loop in Python.

`python -m benchmarks.decode --help`
"""

from __future__ import annotations

import csv
import json
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import click
import pyarrow as pa
import xxhash
from jsonschema import Draft202012Validator

from benchmarks.decode_binary import binary_works
from benchmarks.events import Load, draw, key, timestamp_ms, value
from benchmarks.figures import show_json, show_table, spread, spread_text, teller
from benchmarks.programs import ResultWrong
from tidegate.formats import FrameDecoder, RecordLayout, Records
from tidegate.formats.json.schema import pin_json_schema
from tidegate.formats.schemas import SourceSchemas
from tidegate.kernel.json_text import json_texts

_BLOCK = 16_384
_COLUMNS = pa.schema([("storeId", pa.string()), ("id", pa.int64()), ("quantity", pa.int32())])
_LAYOUT = RecordLayout("json", _COLUMNS, ("storeId", "id"))
_CHANGES = RecordLayout("debezium", _COLUMNS, ("storeId", "id"))
_ROWS = RecordLayout("csv", _COLUMNS, ("storeId", "id"))
_SCHEMA = """{"type": "object", "required": ["storeId", "id"], "additionalProperties": false, "properties": {
  "storeId": {"type": "string", "minLength": 1}, "id": {"type": "integer", "minimum": 0},
  "quantity": {"type": ["integer", "null"]}}}"""
_SATISFYING = replace(_LAYOUT, schemas=SourceSchemas(pin_json_schema(_SCHEMA, {})))
_VALIDATOR = Draft202012Validator(json.loads(_SCHEMA))
_SAME = ("__offset", "__key", "__hash", "__timestamp", *_COLUMNS.names)

Work = Callable[[], list[pa.RecordBatch]]


@dataclass(frozen=True)
class Compared:
    """Processor seconds of the repeats, of columns and of the loop."""

    work: str
    records: int
    columns: tuple[float, ...]
    loop: tuple[float, ...]

    def microseconds(self, seconds: Iterable[float]) -> list[float]:
        """Return the microseconds that one record takes."""
        return [1e6 * second / self.records for second in seconds]


def compare(load: Load, repeat: int, say: Callable[[str], None]) -> list[Compared]:
    """Columns and loop in turns, on the same blocks. Raises ResultWrong when they disagree."""
    say(f"preparing {load.events:,} events")
    blocks = list(_blocks(load))
    decoder, of_changes, of_csv, of_schema = (
        FrameDecoder(layout, None, False) for layout in (_LAYOUT, _CHANGES, _ROWS, _SATISFYING)
    )
    changes = list(map(_as_changes, blocks))
    plain, quoted = (list(map(partial(_as_csv, quoted=quoted), blocks)) for quoted in (False, True))
    rows = [row for block in blocks for row in decoder.decode(block)]
    values = [pa.StructArray.from_arrays(row.columns[-3:], fields=list(_COLUMNS)) for row in rows]
    works: dict[str, tuple[Work, Work]] = {
        "records to rows, with key and hash": (
            lambda: [row.select(_SAME) for block in blocks for row in decoder.decode(block)],
            lambda: list(map(_decoded, blocks)),
        ),
        "changes of Debezium to rows, with key and hash": (
            lambda: [row.select(_SAME) for block in changes for row in of_changes.decode(block)],
            lambda: [_decoded(block, read=lambda change: json.loads(change)["after"]) for block in changes],
        ),
        "records that satisfy a JSON Schema to rows, with key and hash": (
            lambda: [row.select(_SAME) for block in blocks for row in of_schema.decode(block)],
            lambda: [_decoded(block, read=_valid_event) for block in blocks],
        ),
        "rows of CSV to rows, with key and hash": (
            lambda: [row.select(_SAME) for block in plain for row in of_csv.decode(block)],
            lambda: [_decoded(block, read=_csv_row) for block in plain],
        ),
        "rows of CSV with a quoted field to rows, with key and hash": (
            lambda: [row.select(_SAME) for block in quoted for row in of_csv.decode(block)],
            lambda: [_decoded(block, read=_csv_row) for block in quoted],
        ),
        "values of three columns to JSON": (
            lambda: [pa.record_batch([json_texts(value)], ["text"]) for value in values],
            lambda: [pa.record_batch([pa.array(_texts(value))], ["text"]) for value in values],
        ),
    }
    works |= binary_works(load)
    return [_compare(name, *pair, load.events, repeat, say) for name, pair in works.items()]


def _compare(
    name: str, columns: Work, loop: Work, records: int, repeat: int, say: Callable[[str], None]
) -> Compared:
    seconds: dict[str, list[float]] = {"columns": [], "loop": []}
    for number in range(1, repeat + 1):
        say(f"{name}, pair {number} of {repeat}")
        results = {}
        for way, work in (("columns", columns), ("loop", loop)):
            began = time.process_time()
            results[way] = work()
            seconds[way].append(time.process_time() - began)
        if results["columns"] != results["loop"]:
            raise ResultWrong(f"{name}: the columns and the loop give different rows")
    return Compared(name, records, tuple(seconds["columns"]), tuple(seconds["loop"]))


def _blocks(load: Load) -> Iterator[Records]:
    """The events of a load as one topic-partition, in blocks as large as those that are read."""
    for begin, products, quantities in draw(load):
        for start in range(0, len(products), _BLOCK):
            drawn = list(zip(products, quantities, strict=True))[start : start + _BLOCK]
            offsets = range(begin + start, begin + start + len(drawn))
            yield Records(
                "stock",
                0,
                offsets,
                [timestamp_ms(offset) for offset in offsets],
                [key(product).encode() for product, _ in drawn],
                [value(product, quantity) for product, quantity in drawn],
                [None] * len(drawn),
            )


def _as_changes(records: Records) -> Records:
    """Each value as the row after an update, as a connector to PostgreSQL writes it."""
    source = (
        b'{"connector":"postgresql","db":"shop","schema":"public","table":"stock","ts_ms":1,"lsn":24023128}'
    )
    around = b'{"before":null,"after":%b,"source":' + source + b',"op":"u","ts_ms":2,"transaction":null}'
    return replace(records, values=[around % (value or b"null") for value in records.values])


def _as_csv(records: Records, quoted: bool) -> Records:
    """Each value as a row of CSV, on request with its text in quotes."""
    form = '"{storeId}",{id},{quantity}' if quoted else "{storeId},{id},{quantity}"
    rows = [form.format(**json.loads(value or b"")).encode() for value in records.values]
    return replace(records, values=rows)


def _valid_event(value: bytes) -> Any:
    event = json.loads(value)
    _VALIDATOR.validate(event)
    return event


def _csv_row(value: bytes) -> dict[str, Any]:
    ((store, product, quantity),) = csv.reader([value.decode()])
    return {"storeId": store, "id": int(product), "quantity": int(quantity)}


def _decoded(records: Records, read: Callable[[bytes], Any] = json.loads) -> pa.RecordBatch:
    """The loop, as one would write it: no check of anything."""
    rows: list[Sequence[Any]] = []
    for place, text in enumerate(records.values):
        event = read(text or b"")
        name = json.dumps({"storeId": event["storeId"], "id": event["id"]}, separators=(",", ":"))
        hash_ = xxhash.xxh64_intdigest(name.encode(), 42)
        signed = hash_ - 2**64 if hash_ >= 2**63 else hash_
        rows.append((records.offsets[place], name, signed, records.timestamps[place], *event.values()))
    types = [pa.int64(), pa.string(), pa.int64(), pa.int64(), *_COLUMNS.types]
    columns = [pa.array(column, type_) for column, type_ in zip(zip(*rows, strict=True), types, strict=True)]
    return pa.record_batch(columns, list(_SAME))


def _texts(values: pa.StructArray) -> list[str]:
    return [json.dumps(value, separators=(",", ":"), ensure_ascii=False) for value in values.to_pylist()]


def _shown(result: Compared) -> dict[str, Any]:
    return {
        "work": result.work,
        "columns, µs": spread_text(result.microseconds(result.columns), 2),
        "loop, µs": spread_text(result.microseconds(result.loop), 2),
    }


def _as_json(result: Compared) -> dict[str, Any]:
    return {
        "work": result.work,
        "records": result.records,
        "columns_cpu_microseconds": spread(result.microseconds(result.columns)),
        "loop_cpu_microseconds": spread(result.microseconds(result.loop)),
    }


@click.command()
@click.option("--events", default=1_000_000, show_default=True)
@click.option("--keys", default=Load.keys, show_default=True)
@click.option("--repeat", default=3, show_default=True, help="Pairs of runs.")
@click.option("--json", "json_wanted", is_flag=True, help="Print JSON for programs.")
def main(events: int, keys: int, repeat: int, json_wanted: bool) -> None:
    """Measure decoding on one thread, beside a loop over the records in Python."""
    results = compare(Load(events, keys), repeat, teller())
    if json_wanted:
        show_json({"results": [_as_json(result) for result in results]})
    else:
        title = f"Decoding on one core: {events:,} records, µs of processor time each (min / median / max)"
        show_table([_shown(result) for result in results], title)


if __name__ == "__main__":
    main()
