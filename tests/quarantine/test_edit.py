"""Edits of quarantined records: a SQL expression over the JSON value, refused where it does not fit."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.examples import examples
from tests.quarantines import quarantined
from tidegate.errors import SettingsInvalid
from tidegate.quarantine import RecordEdit
from tidegate.storage.quarantine_files import QUARANTINE

REPOSITORY = Path(__file__).resolve().parents[2]


def applied(edit: RecordEdit, **row: Any) -> dict[str, Any]:
    rows = pa.Table.from_pylist([quarantined(1, 7, **row)], QUARANTINE)
    return edit.apply(rows).to_pylist()[0]


@pytest.mark.parametrize(
    ("expression", "value", "expected"),
    [
        ("json_merge_patch(value, {'n': 5})", '{"n":"5"}', '{"n":5}'),
        (
            "json_merge_patch(value, {'n': CAST(value->>'n' AS BIGINT)})",
            '{"m":1.5,"n":"12"}',
            '{"m":1.5,"n":12}',
        ),
        (
            "json_merge_patch(value, {'n': CAST(value->>'n' AS HUGEINT)})",
            '{"n":"123456789012345678901"}',
            '{"n":123456789012345678901}',
        ),
        (
            "json_merge_patch(value, {'n': CAST(value->>'n' AS DECIMAL(9, 2))})",
            '{"n":"0.10"}',
            '{"n":0.1}',
        ),
        (
            "json_merge_patch(value, {'n': CAST(value->'n' AS VARCHAR)})",
            '{"n":123456789012345678901}',
            '{"n":"123456789012345678901"}',
        ),
        ("{'a': {'b': value->'c'->1}}", '{"c":[1,{"ü":"é"}]}', '{"a":{"b":{"ü":"é"}}}'),
        ("[NULL, value->1]", "[1,2]", "[null,2]"),
        ("json_merge_patch(value, '{\"a\":null}')", '{"a":1,"b":2}', '{"b":2}'),
        ("value->'after'", '{"after":{"n":1}}', '{"n":1}'),
        ("value", '{"m":1.50}', '{"m":1.50}'),
        ("'null'::JSON", "[]", "null"),
        ("encode('no JSON')", "[]", "no JSON"),
    ],
)
def test_expression_gives_the_new_value(expression: str, value: str, expected: str) -> None:
    edited = applied(RecordEdit(expression), value=value.encode())
    assert edited["value"] == expected.encode()
    assert edited["key"] == b"k"


def test_both_expressions_see_the_record_before() -> None:
    edited = applied(RecordEdit("{'b': value->'a'}", "value->>'a'"), value=b'{"a":17}', key=b"old")
    assert (edited["key"], edited["value"]) == (b"17", b'{"b":17}')
    assert applied(RecordEdit(key="upper(decode(key))"), value=b"1", key=b"old")["key"] == b"OLD"


@pytest.mark.parametrize(
    ("expression", "value", "why"),
    [
        ("value", b"{oops", "its value is no JSON"),
        ("value", b"\xff", "its value is no JSON"),
        ("value", b'{"n":1,"n":2}', "a field is there twice"),
        ("value", b'{"n":NaN}', "NaN is no JSON"),
        ("value", b"[" * 100_000, "its value is no JSON"),
        ("value", b'{"n":0.12345678901234567890}', "DuckDB would round its number 0.12345678901234567890"),
        ("value", b'{"n":1e400}', "DuckDB would round its number 1e400"),
        ("value->'m'", b"{}", "it gives NULL"),
        ("CAST(value->>'n' AS BIGINT)", b'{"n":"x"}', "Could not convert string 'x' to INT64"),
        ("CAST(value->>'n' AS DOUBLE)", b'{"n":"nan"}', "the result is no JSON"),
        ("unnest([1, 2])", b"1", "it does not give one result"),
        ("value", None, "it has no value"),
    ],
)
def test_record_unfit_for_an_edit_is_named(expression: str, value: bytes | None, why: str) -> None:
    with pytest.raises(SettingsInvalid, match=f"does not fit events/0/7: .*{why}"):
        applied(RecordEdit(expression), value=value)


def test_first_unfit_record_of_many_is_named() -> None:
    values = [b'"x"' if number in (700, 900) else b'"%d"' % number for number in range(1000)]
    records = [quarantined(1, number, value=value) for number, value in enumerate(values)]
    with pytest.raises(SettingsInvalid, match=r"does not fit events/0/700: .*'x'"):
        RecordEdit("CAST(value->>'$' AS BIGINT)").apply(pa.Table.from_pylist(records, QUARANTINE))


@pytest.mark.parametrize(
    "expression",
    [
        *("", "n = 1", "value, value", "value) FROM rows; --", "sum(1)", "$.n = 1", "f(value)"),
        # neither files, nor the network, nor variables of Python
        "(SELECT content FROM read_text('/etc/hostname'))",
        "(SELECT count(*) FROM 'https://localhost/a.parquet')",
        "(SELECT count(*) FROM inputs)",
        "getenv('HOME')",
        "value; SET enable_external_access = true",
    ],
)
def test_what_is_no_expression_is_refused_at_once(expression: str) -> None:
    with pytest.raises(SettingsInvalid, match="DuckDB cannot evaluate"):
        RecordEdit(expression)


@pytest.mark.parametrize("expression", ["17", "value->'n'"])
def test_key_that_is_no_text_is_refused(expression: str) -> None:
    with pytest.raises(SettingsInvalid, match="A key is text"):
        RecordEdit(key=expression)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
)


@examples(12)
@given(JSON)
def test_any_json_goes_through_unchanged(value: Any) -> None:
    text = json.dumps(value).encode()
    assert json.loads(applied(RecordEdit("[value]"), value=text)["value"]) == [value]


# within one row, where DuckDB does not look for signals
ENDLESS = """
import signal
import pyarrow as pa
from tests.quarantines import quarantined
from tidegate.storage.quarantine_files import QUARANTINE
from tidegate.quarantine import RecordEdit
inner = "list_sum(list_transform(range(3000), lambda y: x * y % CAST(value AS BIGINT)))"
edit = RecordEdit(f"list_sum(list_transform(range(3000000), lambda x: {inner}))")
# a shell starts a job in the background with SIGINT ignored, and tests inherit that
signal.signal(signal.SIGINT, signal.default_int_handler)
print("begins", flush=True)
edit.apply(pa.Table.from_pylist([quarantined(1, 7, value=b"17")], QUARANTINE))
"""


@pytest.mark.process
def test_ctrl_c_ends_an_endless_expression() -> None:
    command = [sys.executable, "-c", ENDLESS]
    with subprocess.Popen(command, cwd=REPOSITORY, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        time.sleep(0.5)
        os.kill(process.pid, signal.SIGINT)
        _, error = process.communicate(timeout=600)
    assert b"KeyboardInterrupt" in error
    assert process.returncode in (-signal.SIGINT, 128 + signal.SIGINT)
