"""Call the callbacks of a pipeline file: a function of the user, or one of Airflow's notifiers."""

from __future__ import annotations

import copy
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tidegate.model.airflow import Callback

PlainCallback = str | dict[str, Any]
"""A callback that a serialized DAG can store: `module:name`, or `{"notifier": "module:Class", "with": …}`."""


def plain_callback(written: Callback | None) -> PlainCallback | None:
    """Return a callback of the pipeline file in the form that a DAG can store; None if the file has none.

    Example: `"shop.alerts:page"`, or `{"notifier": "shop.alerts:Pager", "with": {"text": "…"}}`.
    """
    return written if written is None or isinstance(written, str) else written.plain


def callback_name(callback: PlainCallback) -> str:
    """Return the name of a callback without its arguments, for logs.

    Example: `callback_name({"notifier": "shop.alerts:Pager", "with": {}})` is `shop.alerts:Pager`.
    """
    return callback if isinstance(callback, str) else str(callback["notifier"])


def call(callback: PlainCallback, context: Any) -> Any:
    """Call a callback with Airflow's context. Its module is imported only now, so that no DAG waits for it.

    The name is that of a function, of a notifier, or of a class of notifiers that needs no arguments. Each
    call uses a new notifier, because rendering replaces the templates of a notifier. Raises SettingsInvalid
    if a class with arguments is not a notifier.
    """
    # late: DAG files import this module, and the notifiers are needed only when one is called
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
            f"{callback['notifier']} is not a notifier of Airflow",
            "Derive the class from airflow.sdk.BaseNotifier; or name a function: `module:function`.",
        )
    return target(context)


def _named(name: str) -> Any:
    module, _, attribute = name.partition(":")
    return getattr(import_module(module), attribute)
