"""pyarrow in processes of our own."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager


def keep_pandas_out() -> None:
    """Have pyarrow not import pandas with its first array: it would take half a second and 50 MB for nothing.

    It imports it when pandas is asked for (`to_pandas`). Until then it takes a Series for any sequence, so
    this is not for processes of others.
    """
    if "pandas" not in sys.modules:
        with _hidden("pandas"):
            import pyarrow as pa  # late: with it begins what is to be faster

            pa.array([0])


class _Hiding:
    """A finder before all others, which finds one module not to be there."""

    def __init__(self, name: str) -> None:
        self._name = name

    def find_spec(self, name: str, *_: object) -> None:
        if name == self._name:
            raise ModuleNotFoundError(f"{name} is not needed", name=name)


@contextmanager
def _hidden(name: str) -> Iterator[None]:
    hiding = _Hiding(name)
    sys.meta_path.insert(0, hiding)
    try:
        yield
    finally:
        sys.meta_path.remove(hiding)
