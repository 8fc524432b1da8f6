"""Records that come out of quarantine: what of each is meant, and how others know them for new ones."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc


def replayed_topic(topic: str, seq: int) -> str:
    """The topic that stands first in the chain of what batch `seq` replays of `topic`.

    Who drops what it had already by the first entry of chains (`deduplicate: root`) takes these for new: no
    other record came from such a topic, and within one replay offsets still rise.
    """
    return f"{topic}.replay-{seq}"


def with_replayed_root(
    topic: str, partition: pa.Int32Array, offset: pa.Int64Array, chain: pa.StringArray
) -> pa.StringArray:
    """Chains, each with a position in `topic` in front of the hops that it has."""
    numbers = [number.cast(pa.string()) for number in (partition, offset)]
    root = pc.binary_join_element_wise(pa.scalar(topic), *numbers, "/")
    return pc.if_else(chain.is_null(), root, pc.binary_join_element_wise(root, chain, ";"))


def meant_rows(
    wanted: Sequence[int | None], record: pa.Int64Array, part: pa.Int32Array, whole: pa.BooleanArray
) -> pa.BooleanArray:
    """Which of exploded rows are meant, where of each record only one element may be.

    `wanted`: of each record the place of that element, or None for all; `record`, `part`: of each row its
    record's number and its place; `whole`: rows that stand for all of a record.
    """
    place = pa.array(wanted, pa.int32()).take(record)
    return pc.or_(whole, pc.fill_null(pc.equal(place, part), True))
