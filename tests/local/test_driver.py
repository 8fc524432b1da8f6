"""What the JVM of a Spark driver is told depends on the batch."""

from __future__ import annotations

from tidegate.local.driver import FEW_RECORDS, FIRST_COMPILER, driver_options


def test_small_batch_uses_only_the_first_compiler() -> None:
    assert driver_options(None, FEW_RECORDS) == [*FIRST_COMPILER]
    assert driver_options(None, FEW_RECORDS + 1) == []


def test_large_batch_driver_has_both_compilers() -> None:
    assert driver_options(None) == []
