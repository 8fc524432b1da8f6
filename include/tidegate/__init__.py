"""tidegate: micro-batch ETL for Kafka that lets out only what matters, exactly once."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pyarrow as pa

__version__ = "0.1.0"
__all__ = ["__version__", "read_state"]


def read_state(
    pipeline: str, generation: int = 1, as_of: int | None = None, stage: str | None = None
) -> pa.Table:
    """The state of a pipeline's stage (default the last), now or as of a batch, as Arrow, without a JVM.

    One row per key, and window where there are windows; `tidegate.inspect.read_state` says which columns.
    Where the ledger and the lake are comes from the environment (see `tidegate.settings`).
    """
    from tidegate import inspect
    from tidegate.app import App
    from tidegate.ledger import Stream

    return inspect.read_state(App.for_reading(), Stream(pipeline, generation), as_of, stage)
