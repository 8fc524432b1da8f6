"""Which Python code a pipeline file may name.

This is the only part of the grammar that reads the environment.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable

from tidegate.errors import SettingsInvalid, UserFunctionFailed
from tidegate.model.mistakes import mistake

VARIABLE = "TIDEGATE_PYTHON_MODULES"
_MODULE = re.compile(r"[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*", re.ASCII)
_FUNCTION = re.compile(rf"(?P<module>{_MODULE.pattern}):[A-Za-z_]\w*", re.ASCII)


def check_function(name: str) -> str:
    """Return `module:function` if TIDEGATE_PYTHON_MODULES lists the module, or a package around it.

    Raises a mistake otherwise. The module is not imported.
    """
    return _checked(name, "a function", "Write `module:function`: `shop.compare:same`.")


def check_class(name: str) -> str:
    """Return `module:Class` if TIDEGATE_PYTHON_MODULES lists the module, or a package around it.

    Raises a mistake otherwise. The module is not imported.
    """
    return _checked(name, "a class", "Write `module:Class`: `shop.alerts:Pager`.")


def _checked(name: str, kind: str, fix: str) -> str:
    match = _FUNCTION.fullmatch(name)
    if not match:
        raise mistake(f"{name!r} does not name {kind}", fix)
    _check_trusted(match["module"])
    return name


def check_module(name: str) -> str:
    """Return a module if TIDEGATE_PYTHON_MODULES lists it, or a package around it.

    Raises a mistake otherwise.
    """
    if not _MODULE.fullmatch(name):
        raise mistake(f"{name!r} does not name a module", "Write `package.module`: `shop.expectations`.")
    _check_trusted(name)
    return name


def _check_trusted(module: str) -> None:
    if not is_trusted(module):
        fix = f"List it in the environment where tidegate runs: `{VARIABLE}={module},…`."
        raise mistake(f"the module `{module}` may not be called", fix)


def require_trusted_modules(names: Iterable[str]) -> None:
    """Check that the modules of a plan may still be imported. Raises SettingsInvalid otherwise."""
    for name in names:
        if not is_trusted(name):
            raise SettingsInvalid(
                f"The module {name}, which `quality` named in the plan, may not be imported any more",
                f"List `{name}` in {VARIABLE} again, or drop the plan: "
                "tidegate recover PIPELINE --choose drop-plan --yes",
            )


def require_trusted(names: Iterable[str]) -> None:
    """Check that the functions of a plan may still be called. Raises UserFunctionFailed otherwise."""
    for name in names:
        module = name.partition(":")[0]
        if not is_trusted(module):
            raise UserFunctionFailed(
                f"The function {name}, which the batch was planned with, may not be called any more",
                f"List `{module}` in {VARIABLE} again; or name another function.",
            )


def is_trusted(module: str) -> bool:
    """Return whether TIDEGATE_PYTHON_MODULES lists a module, or a package around it.

    Example: `is_trusted("shop.alerts")` is True with TIDEGATE_PYTHON_MODULES=shop.
    """
    # Read at each call: each process that runs a plan has an environment of its own.
    trusted = {name.strip() for name in os.environ.get(VARIABLE, "").split(",")}
    parts = module.split(".")
    # By whole parts: `shop` allows `shop.alerts`, and not `shopping`.
    return any(".".join(parts[:size]) in trusted for size in range(1, len(parts) + 1))
