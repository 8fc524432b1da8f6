"""Import a library without the parts that a process does not need: imports take most of a small batch.

`keep_pandas_out` does that with pandas, for pyarrow and PySpark, in processes that only tidegate uses.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from importlib import import_module
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from types import ModuleType
from typing import Any, NamedTuple


@contextmanager
def hidden(*names: str) -> Iterator[None]:
    """Make modules that are not imported yet appear as missing inside of the block.

    Libraries with optional imports then do without them. Example: `with hidden("pandas"): …`
    """
    with asked_first(_Hiding(frozenset(names))):
        yield


@contextmanager
def postponed(is_postponed: Callable[[str], bool]) -> Iterator[None]:
    """Execute no module inside of the block whose name `is_postponed`.

    What is imported from such a module there is a `Later`. The module itself finds its content after the
    block: the first look at it imports the real one.

    Example::

        with postponed({"pandas"}.__contains__):
            import pandas as pd  # takes no time
        pd.DataFrame()  # imports pandas
    """
    with asked_first(_Postponing(is_postponed)):
        yield
    for name, module in list(sys.modules.items()):
        if type(module) is _Postponed:  # isinstance would let other lazy modules execute
            del sys.modules[name]


@contextmanager
def asked_first(finder: Any) -> Iterator[None]:
    """Ask this import finder before all others: the first that knows a module decides how it is loaded."""
    sys.meta_path.insert(0, finder)
    try:
        yield
    finally:
        sys.meta_path.remove(finder)


# No dataclass: those import `copy`, which looks for Jython's package `org`. Python workers would find it in
# Spark's jar before they take the jar off their path.
class Later(NamedTuple):
    """Stands for what was imported from a module that is not executed yet."""

    module: str
    name: str

    def find(self) -> Any:
        """Import the module, and return what this stands for."""
        return getattr(import_module(self.module), self.name)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call the function or class that this stands for."""
        return self.find()(*args, **kwargs)


class _Hiding:
    """An import finder that reports some modules as missing."""

    def __init__(self, names: frozenset[str]) -> None:
        self._names = names

    def find_spec(self, name: str, *_: object) -> None:
        if name in self._names:
            raise ModuleNotFoundError(f"{name} is not needed", name=name)


class _Postponing:
    """An import finder and loader of modules without content."""

    def __init__(self, is_postponed: Callable[[str], bool]) -> None:
        self._is_postponed = is_postponed

    def find_spec(self, name: str, *_: object) -> ModuleSpec | None:
        return ModuleSpec(name, self, is_package=True) if self._is_postponed(name) else None  # type: ignore[arg-type]

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        return _Postponed(spec.name)

    def exec_module(self, module: ModuleType) -> None:
        """Do nothing."""


class _Postponed(ModuleType):
    """A module that has no content until its block is over."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        later = Later(self.__name__, name)
        return later if sys.modules.get(self.__name__) is self else later.find()


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
