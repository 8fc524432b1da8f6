"""Keep pyarrow from importing pandas, in processes that only tidegate uses."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from types import ModuleType
from typing import Any


def keep_pandas_out() -> None:
    """Keep pyarrow from importing pandas with its first array, which takes half a second and 50 MB.

    pyarrow still imports pandas when it is needed (`to_pandas`). Until then it treats a pandas Series as any
    sequence, so do not call this in processes of other programs. pyarrow can be imported before or after.
    """
    if "pandas" in sys.modules or any(isinstance(finder, _Awaiting) for finder in sys.meta_path):
        return
    if "pyarrow" in sys.modules:
        _look_for_pandas_in_vain()
    else:
        sys.meta_path.insert(0, _Awaiting())


def _look_for_pandas_in_vain() -> None:
    """Let pyarrow search for pandas without success. It searches only once, with its first array."""
    with hidden("pandas"):
        sys.modules["pyarrow"].array([0])


class _Awaiting:
    """An import finder that, as soon as pyarrow is imported, lets pyarrow search for pandas without
    success.
    """

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
    """An import finder that reports some modules as missing."""

    def __init__(self, names: frozenset[str]) -> None:
        self._names = names

    def find_spec(self, name: str, *_: object) -> None:
        if name in self._names:
            raise ModuleNotFoundError(f"{name} is not needed", name=name)


@contextmanager
def hidden(*names: str) -> Iterator[None]:
    """Make modules that are not imported yet appear as missing inside of the block.

    Libraries with optional imports then do without them. Example: `with hidden("pandas"): …`
    """
    hiding = _Hiding(frozenset(names))
    sys.meta_path.insert(0, hiding)
    try:
        yield
    finally:
        sys.meta_path.remove(hiding)
