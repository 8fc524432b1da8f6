"""The pipeline file: its grammar, its checks, and errors with a line and a fix. `public` lists the package's
names.

They are imported at the first access to one of them: code that only reads a plan's outline (`spec.document`)
does not import the grammar.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tidegate.spec.public import *  # noqa: F403  (`public` is the only list of names)
    from tidegate.spec.public import __all__ as __all__


def __getattr__(name: str) -> Any:
    from importlib import import_module
    from importlib.util import find_spec

    if name.startswith("__") and name != "__all__":
        raise AttributeError(name)  # Python looks up names such as `__path__` in every module
    # `from tidegate.spec import names` asks here before it imports the module; `public` would import, in a
    # circle, what is just being imported
    if find_spec(f"{__name__}.{name}") is not None:
        return import_module(f"{__name__}.{name}")
    return getattr(import_module("tidegate.spec.public"), name)
