"""Functions of the user's own, `module:function`, and the version of them that a batch was planned with."""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from typing import Any

from tidegate.errors import UserFunctionFailed

_CORRECT = "Correct it and run again; nothing is lost."


def source_digest(name: str) -> str:
    """Return the SHA-256, in hex, of the present source of a function's module. Raises UserFunctionFailed.

    Modules that it imports do not count.
    """
    module = name.partition(":")[0]
    try:
        spec = importlib.util.find_spec(module)
        loader: Any = spec and spec.loader
        source: str | bytes = loader.get_source(module) or loader.get_data(spec and spec.origin)
    except Exception as error:
        raise _unfound(name, f"{type(error).__name__}: {error}") from error
    return hashlib.sha256(source if isinstance(source, bytes) else source.encode()).hexdigest()


def load(name: str, digest: str | None) -> Callable[[Any, Any], Any]:
    """Return the function. Raises UserFunctionFailed if it does not exist, or its module has another digest.

    `digest` None: any version.

    Example: `load("operator:eq", None)` is `operator.eq`.
    """
    function, loaded_digest = _loaded(name)
    if digest is not None and loaded_digest != digest:
        raise UserFunctionFailed(
            f"The source of {name} is not that of the function which the batch was planned with",
            "Put that back and run again; or drop the plan: then the next batch is planned with the "
            "function as it is now.",
        )
    return function


# Python imports a module once per process, so its digest is that of the first import
@cache
def _loaded(name: str) -> tuple[Callable[[Any, Any], Any], str | None]:
    """Return the function, and the digest of its module when this process imported it, if it has one."""
    module, _, function_name = name.partition(":")
    digest = None
    with suppress(UserFunctionFailed):
        digest = source_digest(name)
    try:
        function = getattr(importlib.import_module(module), function_name)
    except Exception as error:
        raise _unfound(name, f"{type(error).__name__}: {error}") from error
    if not callable(function):
        raise UserFunctionFailed(f"The function {name} is not a function", _CORRECT)
    return function, digest


def _unfound(name: str, how: str) -> UserFunctionFailed:
    return UserFunctionFailed(f"The function {name} cannot be imported: {how}", _CORRECT)
