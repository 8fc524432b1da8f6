"""Planted bugs: each leaves out or turns around one thing that the protocol stands on.

`PLANTED` is name -> a context manager within which the bug is there. Those of the ledger switch off a check
of the ledger in memory, which a contract test holds against the real one; those of `planted_steps` and
`planted_publisher` change the real code.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack
from functools import partial
from typing import Any, TypeVar
from unittest.mock import patch

from tests.simulator.ledger import Checks

Bug = Callable[[], AbstractContextManager[Any]]
Function = TypeVar("Function", bound=Callable[..., Any])
PLANTED: dict[str, Bug] = {}

# `one_plan_per_batch` does no harm as long as the lease holds: it comes with a bug of the steps
# and those of a promotion are for the worlds that have one: see `generations`
_OF_BATCHES = [name for name in vars(Checks) if name.startswith(("epoch", "seq", "lease"))]
for _check in [name for name in _OF_BATCHES if not name.endswith("promotion")]:
    PLANTED[f"ledger_without_{_check}"] = partial(patch.object, Checks, _check, False)


def planted(*places: tuple[Any, str], also: tuple[Bug, ...] = ()) -> Callable[[Function], Function]:
    """Put a function in these places (an object and a name); the bug is known by the function's name."""

    def register(function: Function) -> Function:
        def bug() -> ExitStack:
            stack = ExitStack()
            for target, name in places:
                stack.enter_context(patch.object(target, name, function))
            for patched in also:
                stack.enter_context(patched())
            return stack

        PLANTED[function.__name__] = bug
        return function

    return register
