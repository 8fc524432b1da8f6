"""pyarrow in processes of our own."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from types import ModuleType
from typing import Any


def keep_pandas_out() -> None:
    """Have pyarrow not import pandas with its first array: it would take half a second and 50 MB for nothing.

    It imports it when pandas is asked for (`to_pandas`). Until then it takes a Series for any sequence, so
    this is not for processes of others. pyarrow itself is imported by whoever needs it, now or later.
    """
    if "pandas" in sys.modules or any(isinstance(finder, _Awaiting) for finder in sys.meta_path):
        return
    if "pyarrow" in sys.modules:
        _look_for_pandas_in_vain()
    else:
        sys.meta_path.insert(0, _Awaiting())


def _look_for_pandas_in_vain() -> None:
    """pyarrow looks for it once, with its first array."""
    with hidden("pandas"):
        sys.modules["pyarrow"].array([0])


class _Awaiting:
    """A finder before all others, which has pyarrow look for pandas in vain as soon as it is imported."""

    def find_spec(self, name: str, *_: object) -> ModuleSpec | None:
        if name != "pyarrow":
            return None
        sys.meta_path.remove(self)
        spec = find_spec(name)
        loader: Any = spec and spec.loader
        if loader is not None:
            loader.exec_module = _then_look(loader.exec_module)
        return spec


def _then_look(execute: Any) -> Any:
    def exec_module(module: ModuleType) -> None:
        execute(module)
        if "pandas" not in sys.modules:
            _look_for_pandas_in_vain()

    return exec_module


class _Hiding:
    """A finder before all others, which finds some modules not to be there."""

    def __init__(self, names: frozenset[str]) -> None:
        self._names = names

    def find_spec(self, name: str, *_: object) -> None:
        if name in self._names:
            raise ModuleNotFoundError(f"{name} is not needed", name=name)


@contextmanager
def hidden(*names: str) -> Iterator[None]:
    """Modules that are not imported yet cannot be, so that who can do without them does."""
    hiding = _Hiding(frozenset(names))
    sys.meta_path.insert(0, hiding)
    try:
        yield
    finally:
        sys.meta_path.remove(hiding)
