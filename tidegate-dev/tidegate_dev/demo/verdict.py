"""The sentence that the demo prints about a sample at its end."""

from __future__ import annotations

from tidegate_dev.demo.run import SampleResult
from tidegate_dev.demo.samples import AVAILABILITY, Proof


def verdict(result: SampleResult) -> str:
    """Return one sentence: the size of the output and what it is equal to, or the first difference."""
    proof = result.proof
    if not proof.equal:
        return _difference(proof)
    if result.sample is AVAILABILITY:
        records = sum(map(len, proof.actual.values()))
        return (
            f"a read_committed consumer sees {records} records of {len(proof.actual)} keys, each key's in "
            "order: exactly the availability changes that a separate computation expects from the input."
        )
    return (
        f"{_batches(proof)}: exactly the batches that a separate computation expects from the input and the "
        "runs' clocks."
    )


def _batches(proof: Proof) -> str:
    all_batches = [batch for batches in proof.actual.values() for batch in batches]
    rows = [len(batch["events"]) for batch in all_batches if batch["batch"] is not None]
    waiting = sum(len(batch["events"]) for batch in all_batches) - sum(rows)
    return (
        f"the SQL table has {sum(rows)} events of {len(proof.actual)} customers in {len(rows)} rows, "
        f"at most {max(rows, default=0)} in a row, and {waiting} events still wait; each event appears once, "
        "in order"
    )


def _difference(proof: Proof) -> str:
    keys = proof.expected.keys() | proof.actual.keys()
    wrong = sorted(key for key in keys if proof.expected.get(key) != proof.actual.get(key))
    problems = list(proof.faults)
    if wrong:
        key = wrong[0]
        problems.append(
            f"{len(wrong)} keys differ, the first is {key}: "
            f"expected {proof.expected.get(key)}, got {proof.actual.get(key)}"
        )
    return "; ".join(problems)
