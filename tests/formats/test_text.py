"""Text and bytes: the whole value is one column."""

from __future__ import annotations

from tidegate.formats import BytesDecoder, StringDecoder


def test_a_text_is_its_value() -> None:
    result = StringDecoder().decode(["ä😀".encode(), b"", None])
    assert result.columns.to_pylist() == [{"value": "ä😀"}, {"value": ""}, None]
    assert result.reasons == {}


def test_text_that_is_not_utf8_is_unusable_alone() -> None:
    result = StringDecoder().decode([b"a", b"\xff", b"\xed\xa0\x80", b"b"])
    assert result.columns.to_pylist() == [{"value": "a"}, None, None, {"value": "b"}]
    assert result.reasons == dict.fromkeys([1, 2], "malformed: it is not UTF-8")


def test_bytes_are_as_they_came() -> None:
    result = BytesDecoder().decode([b"\xff\x00", None, b""])
    assert result.columns.to_pylist() == [{"value": b"\xff\x00"}, None, {"value": b""}]
    assert result.reasons == {}
