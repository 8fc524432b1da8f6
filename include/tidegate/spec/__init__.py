"""The pipeline file: its grammar, its checks, and errors that teach. The names are those of `public`.

They are imported when the first of them is asked for: who reads a plan's outline only needs no grammar.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tidegate.spec.public import *  # noqa: F403  (the list of names stands there, once)
    from tidegate.spec.public import __all__ as __all__


def __getattr__(name: str) -> Any:
    from importlib import import_module

    if name.startswith("__") and name != "__all__":
        raise AttributeError(name)  # such as `__path__`, for which Python asks of every module
    return getattr(import_module("tidegate.spec.public"), name)
