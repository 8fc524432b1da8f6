"""Where two generations stand at the same point of their source: only there can their outputs be compared."""

from __future__ import annotations

from tidegate.app.root import App
from tidegate.errors import Halted
from tidegate.ledger import Head, Offsets, Stream


def common_point(app: App, old: Stream, new: Stream) -> tuple[int, int]:
    """The last batch of each such that both have read the same, in every partition that both read.

    Offsets only rise from batch to batch, so the one that is further goes back, until they meet. Raises
    Halted where they do not: as far as the ledger remembers, no two batches end at the same offsets.
    """
    heads = app.ledger.head(old), app.ledger.head(new)
    shared = _shared_partitions(*heads)
    seqs = [head.seq for head in heads]
    while all(seqs):
        ends = [_ends(app, head, seq, shared) for head, seq in zip(heads, seqs, strict=True)]
        if None in ends:
            break
        first, second = ends
        if first == second:
            return seqs[0], seqs[1]
        behind = sum((first or {}).values()) < sum((second or {}).values())
        seqs[1 if behind else 0] -= 1
    raise Halted(
        f"No batch of {new} ends where one of {old} does, so their outputs cannot be compared",
        "Give both the same schedule, or run both with the same `--until`.",
    )


def _shared_partitions(old: Head, new: Head) -> list[tuple[str, int]]:
    """Of topics that both read, and that are not others of the same name."""
    return [
        partition
        for partition in old.offsets
        if partition in new.offsets and old.topic_ids.get(partition[0]) == new.topic_ids.get(partition[0])
    ]


def _ends(app: App, head: Head, seq: int, partitions: list[tuple[str, int]]) -> Offsets | None:
    """How far a batch went: 0 in a partition that it did not know. None where the ledger has forgotten it."""
    if seq == head.seq:
        return {partition: head.offsets[partition] for partition in partitions}
    plan = app.ledger.plan(head.stream, seq)
    return {partition: plan.ends.get(partition, 0) for partition in partitions} if plan is not None else None
