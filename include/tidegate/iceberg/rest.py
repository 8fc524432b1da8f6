"""PyIceberg's REST catalog with a limit for the time of a request.

Without one, a server that does not answer would stop a step for ever.
"""

from __future__ import annotations

from typing import Any

from pyiceberg.catalog.rest import RestCatalog
from requests import PreparedRequest, Response, Session
from requests.adapters import HTTPAdapter


class PatientCatalog(RestCatalog):  # type: ignore[misc]  # see mypy.overrides
    """A REST catalog whose requests end after `timeout_s` without an answer.

    No request is repeated by itself: a commit that is sent twice is refused the second time, and would look
    as if it had failed.
    """

    def __init__(self, name: str, timeout_s: float, **properties: str) -> None:
        self._timeout_s = timeout_s
        super().__init__(name, **properties)

    def _create_session(self) -> Session:
        session: Session = super()._create_session()
        for scheme in ("https://", "http://"):
            session.mount(scheme, _Limited(self._timeout_s))
        return session


class _Limited(HTTPAdapter):  # type: ignore[misc]
    def __init__(self, timeout_s: float) -> None:
        self._timeout_s = timeout_s
        super().__init__(max_retries=0)

    def send(self, request: PreparedRequest, **options: Any) -> Response:
        options["timeout"] = options.get("timeout") or self._timeout_s
        return super().send(request, **options)
