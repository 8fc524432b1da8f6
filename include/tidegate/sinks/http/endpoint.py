"""Send requests to an endpoint, and repeat those that it did not acknowledge.

| answer | is |
|---|---|
| 2xx | acknowledged |
| 408, 425, 429, 5xx, none, or one that breaks off | unknown: the same request is sent again |
| any other | refused: a repetition would be refused, too |

No redirect is followed: a request has secrets, and they are for the host that the connection names.
"""

from __future__ import annotations

import random
import socket
import ssl
from collections.abc import Callable
from contextlib import ExitStack
from datetime import datetime, timezone
from email.utils import parsedate_to_datetime
from time import monotonic, sleep
from types import TracebackType
from typing import NamedTuple

import httpx2 as httpx

from tidegate.errors import SinkBusy, SinkRefused, SinkUnavailable
from tidegate.failpoints import failpoint
from tidegate.sinks.http.requests import EmissionRequest
from tidegate.sinks.web import HttpConfig

PAUSES = (0.5, 1.0, 2.0, 4.0, 8.0)
"""The seconds before the second, third, … try of a request, unless the endpoint asks for another pause."""
LONGEST_PAUSE = 30.0
"""The longest pause, in seconds, that the process waits if an endpoint asks for it: it occupies a worker."""
_AGAIN = frozenset({408, 425, 429})
_SERVER_ERROR = 500
_REMEDIES = {
    300: "It is a redirect, and none is followed. Write the URL to which it leads into {variable}",
    401: "Correct the login, the token or the header of {variable}",
    403: "Give the login, the token or the header of {variable} the right to post there",
    404: "Correct the URL in {variable}, behind which is the sink's `path`, or let the receiver listen there",
    405: "Correct the URL in {variable}, behind which is the sink's `path`, or let the receiver take POST",
    413: "Raise the receiver's limit (`max_bytes` and `batch_records` of the sink change later batches only)",
    415: "Let the receiver take this content type (`format` of the sink changes later batches only)",
}
"""Status of a refusal, 300 for each redirect -> what a person does."""
_READ_BYTES = 64 * 1024


class Answer(NamedTuple):
    """The answer to one try: its status, and the beginning of its body; or, with status 0, why none came.

    Args:
        pause: the seconds that the endpoint asks to wait; None if it does not ask.
    """

    status: int
    text: str
    pause: float | None = None

    @property
    def is_acknowledged(self) -> bool:
        """Whether the endpoint has the request."""
        return 200 <= self.status < 300

    @property
    def is_unknown(self) -> bool:
        """Whether the endpoint may have the request, or would take it later."""
        return not self.status or self.status in _AGAIN or self.status >= _SERVER_ERROR


class Endpoint:
    """Sends requests to the URL of one sink, one at a time."""

    def __init__(self, config: HttpConfig, path: str | None) -> None:
        self._config = config
        self._url = config.url(path)
        self._open = ExitStack()

    def __enter__(self) -> Endpoint:
        """Make the client, which connects with the first request."""
        self._client = self._open.enter_context(self._config.client())
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close the connections."""
        self._open.close()

    def send(self, request: EmissionRequest, renew: Callable[[], object]) -> None:
        """Send a request until the endpoint acknowledges it.

        Args:
            renew: Raises Fenced if another process has taken over. It is called after each pause, which can
                be long.

        Raises SinkRefused if it refuses it; SinkUnavailable if it does not acknowledge it in several tries;
        SinkBusy if it asks for a long pause; SettingsInvalid for certificates.
        """
        for pause in (*PAUSES, None):
            answer = self._try(request)
            if answer.is_acknowledged:
                return
            if not answer.is_unknown:
                raise self._refused(request, answer)
            unavailable = self._unavailable(answer)
            if answer.pause is not None and answer.pause > LONGEST_PAUSE:
                raise SinkBusy(unavailable.what, unavailable.fix, answer.pause)
            if pause is None:
                raise unavailable
            # Random, so that the sinks of many pipelines do not come back at the same moment.
            sleep(answer.pause if answer.pause is not None else pause * random.uniform(0.5, 1.0))
            renew()

    def _try(self, request: EmissionRequest) -> Answer:
        try:
            with failpoint("http.send"):
                return self._post(request)
        except (httpx.TransportError, ConnectionError) as error:
            if (refusal := self._config.without_tls(error)) is not None:
                raise refusal from None
            return Answer(0, self._reason(error))

    def _post(self, request: EmissionRequest) -> Answer:
        """Send the request once, and read the answer to its end, or as far as it matters.

        An answer that breaks off is none: a proxy can have sent its status before the receiver had decided.
        """
        ends = monotonic() + self._config.timeout
        with self._client.stream(
            "POST", self._url, content=request.body, headers=request.headers
        ) as response:
            body = b""
            for part in response.iter_raw():
                body += part
                if len(body) >= _READ_BYTES:
                    break
                if monotonic() > ends:
                    return Answer(0, "the answer does not end")
            pause = _pause(response.headers.get("retry-after"))
            return Answer(response.status_code, self._config.shown(body.decode(errors="replace")), pause)

    def reach(self) -> None:
        """Connect to the endpoint, or to its proxy, without sending a request.

        Raises SinkUnavailable if it does not answer, SettingsInvalid if its certificate is refused.
        """
        config = self._config
        try:
            with failpoint("http.reach"), socket.create_connection(config.address, config.timeout) as plain:
                if config.tls is not None and config.proxy is None:
                    config.tls.wrap_socket(plain, server_hostname=config.host).close()
        except ssl.SSLError as error:
            raise self._config.tls_refused(error) from None
        except OSError as error:
            raise self._unavailable(Answer(0, self._reason(error))) from None

    def _reason(self, error: Exception) -> str:
        """Return why no answer came: `Connection refused`, `Name or service not known`."""
        text = getattr(error, "strerror", None) or str(error) or type(error).__name__
        return self._config.shown(text)

    def _refused(self, request: EmissionRequest, answer: Answer) -> SinkRefused:
        text = f": {answer.text}" if answer.text else ""
        kind = 300 if 300 <= answer.status < 400 else answer.status
        remedy = _REMEDIES.get(kind, "Correct {variable} or the receiver").format(
            variable=self._config.variable
        )
        return SinkRefused(
            f"The endpoint {self._config.place} refuses request {request.headers['idempotency-key']} with "
            f"status {answer.status}{text}",
            f"{remedy}, and run again: the batch stays decided, and goes on with this request.",
        )

    def _unavailable(self, answer: Answer) -> SinkUnavailable:
        outcome = (
            f"answers {answer.status}: {answer.text}" if answer.status else f"does not answer ({answer.text})"
        )
        pause = f", and asks for {answer.pause:.0f} s" if answer.pause else ""
        return SinkUnavailable(
            f"The endpoint {self._config.place} {outcome}{pause}",
            f"Check that it runs, and that {self._config.variable} has its address; then run again: nothing "
            "is lost, and a request that it may have is sent with the same idempotency key.",
        )


def _pause(written: str | None) -> float | None:
    """Return the seconds of a `Retry-After`, which has a number or a date; None for anything else.

    >>> _pause("120"), _pause("Thu, 01 Jan 1970 00:00:00 GMT"), _pause("soon")
    (120.0, 0.0, None)
    """
    if written is None:
        return None
    if written.strip().isascii() and written.strip().isdigit():
        return float(written)
    try:
        at = parsedate_to_datetime(written)
    except (ValueError, TypeError):
        return None
    zoned = at if at.tzinfo is not None else at.replace(tzinfo=timezone.utc)
    return max(0.0, (zoned - datetime.now(timezone.utc)).total_seconds())
