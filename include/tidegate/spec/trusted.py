"""Which Python code a pipeline file may name. The only part of the grammar that reads the environment."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable

from tidegate.errors import SettingsInvalid, UserFunctionFailed
from tidegate.spec.mistakes import mistake

VARIABLE = "TIDEGATE_PYTHON_MODULES"
_MODULE = re.compile(r"[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*", re.ASCII)
_FUNCTION = re.compile(rf"(?P<module>{_MODULE.pattern}):[A-Za-z_]\w*", re.ASCII)


def check_function(name: str) -> str:
    """`module:function`, where the module or a package around it is listed in TIDEGATE_PYTHON_MODULES."""
    return _checked(name, "a function", "Write `module:function`: `shop.compare:same`.")


def check_class(name: str) -> str:
    """`module:Class`, likewise."""
    return _checked(name, "a class", "Write `module:Class`: `shop.alerts:Pager`.")


def _checked(name: str, kind: str, fix: str) -> str:
    found = _FUNCTION.fullmatch(name)
    if not found:
        raise mistake(f"{name!r} does not name {kind}", fix)
    _check_trusted(found["module"])
    return name


def check_module(name: str) -> str:
    """A module that is listed, or a package around which is."""
    if not _MODULE.fullmatch(name):
        raise mistake(f"{name!r} does not name a module", "Write `package.module`: `shop.expectations`.")
    _check_trusted(name)
    return name


def _check_trusted(module: str) -> None:
    if not is_trusted(module):
        fix = f"Whoever runs tidegate has to list it in the environment: `{VARIABLE}={module},…`."
        raise mistake(f"the module `{module}` may not be called", fix)


def require_trusted_modules(names: Iterable[str]) -> None:
    """Of modules that were planned with: whether they may still be imported. Raises SettingsInvalid."""
    for name in names:
        if not is_trusted(name):
            raise SettingsInvalid(
                f"The module {name}, which `quality` named in the plan, may not be imported any more",
                f"List `{name}` in {VARIABLE} again, or drop the plan: "
                "tidegate recover PIPELINE --choose drop-plan --yes",
            )


def require_trusted(names: Iterable[str]) -> None:
    """Of functions that were planned with: whether they may still be called. Raises UserFunctionFailed."""
    for name in names:
        module = name.partition(":")[0]
        if not is_trusted(module):
            raise UserFunctionFailed(
                f"The function {name}, which the batch was planned with, may not be called any more",
                f"List `{module}` in {VARIABLE} again; or name another function.",
            )


def is_trusted(module: str) -> bool:
    """Whether a module, or a package around it, is listed."""
    trusted = {name.strip() for name in os.environ.get(VARIABLE, "").split(",")}
    parts = module.split(".")
    return any(".".join(parts[:size]) in trusted for size in range(1, len(parts) + 1))
