"""Numbers of things, as messages write them."""

from __future__ import annotations


def counted(number: int, noun: str) -> str:
    """Return a number with its noun. Example: `1 key`, `2 batches`, `1,000 rows`."""
    if number != 1:
        noun += "es" if noun.endswith("ch") else "s"
    return f"{number:,} {noun}"


def batches_named(first: int, last: int) -> str:
    """Return the name of batches, both included. Example: `batch 7`, `batches 7 to 9`."""
    return f"batch {first}" if first == last else f"batches {first} to {last}"
