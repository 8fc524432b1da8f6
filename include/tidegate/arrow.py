"""Keep pyarrow and PySpark from importing pandas, in processes that only tidegate uses."""

from __future__ import annotations

import sys
from contextlib import nullcontext
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from types import ModuleType
from typing import Any

from tidegate.imports import hidden, postponed


def keep_pandas_out() -> None:
    """Keep pyarrow and PySpark from importing pandas, which takes half a second and 50 MB.

    pyarrow searches for pandas with its first array. PySpark imports it to ask for its version, when it first
    calls the JVM, and when it makes a frame of `mapInArrow`; its client of Spark Connect imports it for
    frames that are made from those of pandas. All still import pandas when it is needed (`to_pandas`). Until
    then pyarrow treats a pandas Series as any sequence, so do not call this in processes of other programs.
    pyarrow can be imported before or after, PySpark after.
    """
    awaited = {finder.module for finder in sys.meta_path if isinstance(finder, _Awaiting)}
    for name, change in _CHANGES.items():
        if name in sys.modules:
            change(sys.modules[name])
        elif name not in awaited:
            sys.meta_path.insert(0, _Awaiting(name))
    sys.meta_path[:0] = [_Awaiting(name) for name in _CONNECT - awaited - sys.modules.keys()]


def _search_in_vain(pyarrow: Any) -> None:
    """Let pyarrow search for pandas without success. It searches only once, with its first array."""
    with hidden("pandas"):  # without effect if pandas is imported already
        pyarrow.array([0])


def _ask_without_import(utils: Any) -> None:
    """Let PySpark's check for pandas pass if pandas is installed: the extra that installs it bounds its
    version.
    """
    check = utils.require_minimum_pandas_version
    utils.require_minimum_pandas_version = lambda: None if find_spec("pandas") else check()


_CHANGES = {"pyarrow": _search_in_vain, "pyspark.sql.pandas.utils": _ask_without_import}
"""Module -> what is done with it as soon as it is imported."""

_CONNECT = frozenset({"pyspark.sql.connect.session", "pyspark.sql.connect.client.core"})
"""Modules that import pandas and use it only for its own frames."""

_PANDAS = frozenset({"pandas", "pandas.api", "pandas.api.types"})
"""The modules of pandas that these import. PySpark has imported pyarrow before them."""


class _Awaiting:
    """An import finder that changes a module as soon as it is imported."""

    def __init__(self, module: str) -> None:
        self.module = module

    def find_spec(self, name: str, *_: object) -> ModuleSpec | None:
        if name != self.module:
            return None
        sys.meta_path.remove(self)
        spec = find_spec(name)
        loader: Any = spec and spec.loader
        if loader is not None:
            loader.exec_module = _then_change(loader.exec_module)
        return spec


def _then_change(execute: Any) -> Any:
    def exec_module(module: ModuleType) -> None:
        with postponed(_PANDAS.__contains__) if module.__name__ in _CONNECT else nullcontext():
            execute(module)
        # spark-submit has PySpark in a zip file, which has one loader for all of its modules
        if module.__name__ in _CHANGES:
            _CHANGES[module.__name__](module)

    return exec_module
