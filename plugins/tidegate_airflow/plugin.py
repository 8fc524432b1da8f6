"""Airflow's plugin: pages about pipelines in the UI, and a link from each task to its batch.

Every component of Airflow loads plugins, so the pages are imported only with the first request to them.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, MutableMapping
from functools import cache
from typing import Any

from airflow.plugins_manager import AirflowPlugin

from tidegate_airflow.operators import BatchLink, DataDocsLink, pages_path

NAME = "tidegate"
Message = MutableMapping[str, Any]


class LazyPages:
    """An ASGI application that is created with its first request."""

    async def __call__(
        self,
        scope: Message,
        receive: Callable[[], Awaitable[Message]],
        send: Callable[[Message], Awaitable[None]],
    ) -> None:
        await _pages()(scope, receive, send)


@cache
def _pages() -> Any:
    from tidegate.console.routes import create_app
    from tidegate_airflow.console import AirflowHost

    return create_app(AirflowHost())


class TidegatePlugin(AirflowPlugin):  # type: ignore[misc]  # Airflow is not typed
    """The pages below /tidegate, their entry in the menu "Browse", and the links of tasks."""

    name = NAME
    fastapi_apps = [{"app": LazyPages(), "url_prefix": f"/{NAME}", "name": NAME}]  # noqa: RUF012  as Airflow has it
    external_views = [  # noqa: RUF012
        {
            "name": "Tidegate",
            "href": pages_path(),
            "url_route": NAME,
            "destination": "nav",
            "category": "browse",
        }
    ]
    operator_extra_links = [BatchLink(), DataDocsLink()]  # noqa: RUF012
