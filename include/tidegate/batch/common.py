"""Where two generations stand at the same point of their source: only there can their outputs be compared."""

from __future__ import annotations

from tidegate.app.root import App
from tidegate.errors import Halted
from tidegate.ledger import Head, Offsets, Stream


def common_point(app: App, old: Stream, new: Stream) -> tuple[int, int]:
    """Return the last batch of each stream such that both have read the same in every partition that both
    read.

    Offsets only rise from batch to batch, so the stream that is ahead goes back until they meet. Raises
    Halted if no two batches that the ledger still has end at the same offsets.
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
    """Return the partitions that both read, of topics that have the same id in both."""
    return [
        partition
        for partition in old.offsets
        if partition in new.offsets and old.topic_ids.get(partition[0]) == new.topic_ids.get(partition[0])
    ]


def _ends(app: App, head: Head, seq: int, partitions: list[tuple[str, int]]) -> Offsets | None:
    """Return the end offsets of a batch (0 in a partition that it did not have); None if the ledger has no
    plan of it.
    """
    if seq == head.seq:
        return {partition: head.offsets[partition] for partition in partitions}
    plan = app.ledger.plan(head.stream, seq)
    return {partition: plan.ends.get(partition, 0) for partition in partitions} if plan is not None else None
