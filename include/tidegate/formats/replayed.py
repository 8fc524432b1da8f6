"""Records that are replayed from quarantine: which part of each is replayed, and their source chains."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc


def replayed_topic(topic: str, seq: int) -> str:
    """Return the topic that comes first in the source chains of what batch `seq` replays of `topic`.

    A consumer with `deduplicate: root` drops records by the first entry of their chain. It accepts these as
    new: no other record comes from such a topic, and within one replay offsets still rise.

    Example::

        replayed_topic("stock", 7)  # "stock.replay-7"
    """
    return f"{topic}.replay-{seq}"


def with_replayed_root(
    topic: str, partition: pa.Int32Array, offset: pa.Int64Array, chain: pa.StringArray
) -> pa.StringArray:
    """Return chains with a position in `topic` before the hops that they have.

    Example: `stock.replay-7`, partition 0 and offset 3 without a chain give `stock.replay-7/0/3`.
    """
    numbers = [number.cast(pa.string()) for number in (partition, offset)]
    root = pc.binary_join_element_wise(pa.scalar(topic), *numbers, "/")
    return pc.if_else(chain.is_null(), root, pc.binary_join_element_wise(root, chain, ";"))


def meant_rows(
    wanted_parts: Sequence[int | None], record: pa.Int64Array, part: pa.Int32Array, whole: pa.BooleanArray
) -> pa.BooleanArray:
    """Return which of the exploded rows are replayed.

    Args:
        wanted_parts: Per record, the index of the element that is replayed; None for all elements.
        record: Per row, the index of its record.
        part: Per row, its index in the exploded list.
        whole: Per row, whether it stands for the whole record.
    """
    place = pa.array(wanted_parts, pa.int32()).take(record)
    return pc.or_(whole, pc.fill_null(pc.equal(place, part), True))
