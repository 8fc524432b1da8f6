"""What a pipeline file wants to be called: a function of the user's own, or one of Airflow's notifiers."""

from __future__ import annotations

import copy
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tidegate.spec.airflow import Callback

PlainCallback = str | dict[str, Any]
"""As a stored DAG has it: `module:name`, or `{"notifier": "module:Class", "with": arguments}`."""


def plain_callback(written: Callback | None) -> PlainCallback | None:
    """As the pipeline file has it; None: nothing."""
    return written if written is None or isinstance(written, str) else written.plain


def callback_name(callback: PlainCallback) -> str:
    """Without its arguments, for logs."""
    return callback if isinstance(callback, str) else str(callback["notifier"])


def call(callback: PlainCallback, context: Any) -> Any:
    """Call it with Airflow's context. Its module is imported only now: no DAG waits for it.

    A name is that of a function, of a notifier, or of a class of notifiers that needs no arguments. Each call
    has a notifier of its own: rendering its templates replaces them. Raises SettingsInvalid where a class is
    given arguments that is none of notifiers.
    """
    from airflow.sdk import BaseNotifier

    target = _named(callback_name(callback))
    if isinstance(target, BaseNotifier):
        return copy.copy(target)(context)
    if isinstance(target, type) and issubclass(target, BaseNotifier):
        arguments = {} if isinstance(callback, str) else callback["with"]
        return target(**arguments)(context)
    if not isinstance(callback, str):
        from tidegate.errors import SettingsInvalid

        raise SettingsInvalid(
            f"{callback['notifier']} is no notifier of Airflow's",
            "Let the class derive from airflow.sdk.BaseNotifier; or name a function: `module:function`.",
        )
    return target(context)


def _named(name: str) -> Any:
    module, _, attribute = name.partition(":")
    return getattr(import_module(module), attribute)
