"""What a log says of a batch's counts."""

from __future__ import annotations

from tidegate.batch_counts import computed_text, published_text

COUNTS = {
    "": {"read": 10_000, "exploded": 5, "used": 10_002},
    "changes": {"emitted": 4_920, "emitted-too-large": 2, "quarantined": 3},
    "totals": {"emitted": 7},
    "stock:columns": {"quantity": 10_000},
}


def test_log_has_records_quarantine_and_emissions() -> None:
    assert computed_text(COUNTS) == (
        "10,005 records came in, 5 in quarantine; emitted: changes 4,918, totals 7"
    )
    assert computed_text({"": {}}) == "0 records came in, 0 in quarantine"


def test_log_has_records_of_each_sink() -> None:
    assert published_text({"kafka:changes": 4_918, "table": 7}) == "4,918 to kafka:changes, 7 to table"
    assert published_text({}) == "no sink"
