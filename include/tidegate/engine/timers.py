"""Which keys a batch has to look at although it has no records of them: those whose timers fire."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812

from tidegate import core
from tidegate.engine.rows import time_of


def keys_with_timers(state: DataFrame, logic: core.Stage, batch: core.Batch) -> DataFrame:
    """The keys of state whose timers the batch's end reaches; of a bounded or drained buffer, all that hold.

    Reads no values, but every entry's newest row: the price of a timer is a look at each key's due time.
    """
    entry = ["key", "window_start", "window_end", *(("topic", "partition") if logic.bound else ())]
    told = F.struct("updated_seq", "due_at", "pending", "topic", "partition")
    newest = state.groupBy(*entry).agg(F.max(told).alias("newest"))
    row = F.col("newest")
    end = F.coalesce(time_of(batch.ends, row["topic"], row["partition"]), F.lit(batch.least_end).cast("long"))
    reached = row["due_at"] <= end
    wanted = reached | (row["pending"] > 0) if logic.bound or batch.drain else reached
    return newest.where(wanted).select("key").distinct()


def looks_at_timers(logic: core.Stage) -> bool:
    """Whether entries of the stage can have timers at all."""
    return logic.window is not None or logic.emit.holds or logic.emit.expires
