"""Import a library without the parts that a process does not need: imports take most of a small batch."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import import_module
from importlib.machinery import ModuleSpec
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
