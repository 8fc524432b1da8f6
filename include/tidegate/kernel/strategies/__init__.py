"""Emit strategies, which decide when a value is emitted. One file each, with options, the rule per record and
the rule on whole columns; `docs/strategies.md` shows how to add one.

Nothing else lists strategies: the grammar, the JSON Schema and the messages find them here.
"""

from importlib import import_module

from tidegate.kernel.strategies.in_sequence import InSequence
from tidegate.kernel.strategies.join import Join
from tidegate.kernel.strategies.last_record import LastRecord
from tidegate.kernel.strategies.once import Once
from tidegate.kernel.strategy import Emit
from tidegate.kernel.ttl import TimeToLive

_FILES = ("update", "change", "window_close", "time_limit", "threshold", "interval", "quiet")
"""A file contains the strategy of its name."""
OF_FIELDS: tuple[type[Emit], ...] = (Once, InSequence, LastRecord, Join)
"""The strategies that other fields than `emit` ask for: of the source, of `lookup`, and a stage's `join`."""


def _strategy(name: str) -> type[Emit]:
    module = import_module(f"{__name__}.{name}")
    declared = [part for part in vars(module).values() if isinstance(part, type) and issubclass(part, Emit)]
    return next(strategy for strategy in declared if strategy.on == name)


STRATEGIES: dict[str, type[Emit]] = {name: _strategy(name) for name in _FILES}
"""`on` in a pipeline file -> its strategy."""

REASONS: dict[str, str] = {
    reason: meaning
    for strategy in (*STRATEGIES.values(), *OF_FIELDS)
    for reason, meaning in strategy.reasons.items()
} | dict(TimeToLive.reasons)
"""The reasons of emissions, and the fates of records, that strategies and `ttl` give -> their meaning."""
