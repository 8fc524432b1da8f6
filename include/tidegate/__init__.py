"""tidegate: micro-batch ETL for Kafka that emits only what matters, exactly once."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pyarrow as pa

__version__ = "0.1.0"
__all__ = ["__version__", "read_state"]


def read_state(
    pipeline: str, generation: int = 1, as_of: int | None = None, stage: str | None = None
) -> pa.Table:
    """Return the state of a pipeline's stage as an Arrow table, without a JVM.

    The table has one row per key (and window, if the stage has windows); `tidegate.inspect.read_state` lists
    the columns. The environment says where ledger and lake are (see `tidegate.settings`).

    Args:
        pipeline: the name of the pipeline.
        generation: its generation.
        as_of: the batch after which the state is read; None: the head.
        stage: the name of the stage; None: the last one.

    Raises StateGivenUp if the state after `as_of` is no longer kept.

    Example:
        >>> tidegate.read_state("orders", as_of=7).num_rows
        100000
    """
    from tidegate import inspect
    from tidegate.app import App
    from tidegate.ledger import Stream

    return inspect.read_state(App.for_reading(), Stream(pipeline, generation), as_of, stage)
