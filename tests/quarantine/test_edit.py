"""Edits of quarantined values: small, exact, and refused where they do not fit."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.examples import examples
from tests.quarantines import quarantined
from tidegate.errors import SettingsInvalid
from tidegate.lake.quarantine_files import QUARANTINE
from tidegate.quarantine import ValueEdit


def applied(edits: list[str], **row: Any) -> dict[str, Any]:
    rows = pa.Table.from_pylist([quarantined(1, 7, **row)], QUARANTINE)
    return ValueEdit.parse(edits).apply(rows).to_pylist()[0]


@pytest.mark.parametrize(
    ("edit", "value", "expected"),
    [
        ("$.n = 5", '{"n":"5"}', '{"n":5}'),
        ("$.n = integer($.n)", '{"n":"12","m":1.50}', '{"n":12,"m":1.50}'),
        ("$.n = integer($.n)", '{"n":"123456789012345678901"}', '{"n":123456789012345678901}'),
        ("$.n = integer($.n)", '{"n":3.0}', '{"n":3}'),
        ("$.n = number($.n)", '{"n":"0.10"}', '{"n":0.10}'),
        ("$.n = text($.n)", '{"n":1e400}', '{"n":"1E+400"}'),
        ("$.a.b = $.c[1]", '{"a":{},"c":[1,{"ü":"é"}]}', '{"a":{"b":{"ü":"é"}},"c":[1,{"ü":"é"}]}'),
        ("$[0] = null", "[1,2]", "[null,2]"),
        ("$[0] = nothing", "[1,2]", "[2]"),
        ("$.a = nothing", '{"a":1,"b":2}', '{"b":2}'),
        ("$.a = nothing", '{"b":2}', '{"b":2}'),
        ('$["a b"] = "="', '{"a b":1}', '{"a b":"="}'),
        ("$ = $.after", '{"after":{"n":1}}', '{"n":1}'),
        ("$ = {}", None, "{}"),
        ("$ = nothing", "[]", None),
    ],
)
def test_edit_assigns_one_place_only(edit: str, value: str | None, expected: str | None) -> None:
    edited = applied([edit], value=None if value is None else value.encode())
    assert edited["value"] == (None if expected is None else expected.encode())


def test_edits_apply_in_order_and_reach_keys() -> None:
    edited = applied(["$.b = $.a", "$.a = nothing", "key = text($.b)"], value=b'{"a":17}', key=b"old")
    assert (edited["key"], edited["value"]) == (b"17", b'{"b":17}')
    assert applied(["key = null"], value=b"1")["key"] is None


@pytest.mark.parametrize(
    ("edit", "value", "why"),
    [
        ("$.n = 1", b"{oops", "its value is no JSON"),
        ("$.n = 1", b'{"n":1,"n":2}', "a field is there twice"),
        ("$.n = 1", b'{"n":NaN}', "NaN is no JSON"),
        ("$.n = 1", b"[]", r"it has no place \$.n"),
        ("$.n = $.m", b"{}", r"it has nothing at \$.m"),
        ("$.n = integer($.n)", b'{"n":1.5}', "1.5 is no integer"),
        ("$.n = integer($.n)", b'{"n":true}', "true is no integer"),
        ("$.n = number($.n)", b'{"n":"x"}', '"x" is no number'),
        ("key = $.n", b'{"n":1}', "a key is text"),
        ("$.n = 1", None, "it has no value"),
    ],
)
def test_record_unfit_for_an_edit_is_named(edit: str, value: bytes | None, why: str) -> None:
    with pytest.raises(SettingsInvalid, match=f"does not fit events/0/7: .*{why}"):
        applied([edit], value=value)


@pytest.mark.parametrize(
    "edit", ["", "n = 1", "$.n", "$.n = ", "$.n = f($.m)", "$.n = {1}", "$..n = 1", "$.n = __import__('os')"]
)
def test_what_is_no_edit_is_refused_at_once(edit: str) -> None:
    with pytest.raises(SettingsInvalid):
        ValueEdit.parse([edit])


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
)


@examples(12)
@given(JSON, st.dictionaries(st.text(), JSON))
def test_assigned_value_round_trips(value: Any, document: dict[str, Any]) -> None:
    text = json.dumps(document, ensure_ascii=False).encode(errors="surrogatepass")
    edited = applied([f"$.x = {json.dumps(value)}"], value=text)
    assert json.loads(edited["value"]) == document | {"x": value}
