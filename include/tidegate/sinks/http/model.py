"""The `http` sink in a pipeline file: an endpoint that gets emissions by POST, and the form of requests."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, ClassVar, Literal

from pydantic import AfterValidator, Field, StrictInt

from tidegate.formats.schemas import Payload
from tidegate.model import names
from tidegate.model.cloudevents import EXAMPLES, CloudEvents, check_cloudevents
from tidegate.model.connection import Connection
from tidegate.model.mistakes import mistake
from tidegate.sinks.model import MessageRules, SinkModel

_SEGMENT = r"[A-Za-z0-9_~-][A-Za-z0-9._~-]*"
_PATH = re.compile(rf"{_SEGMENT}(/{_SEGMENT})*")
_LONGEST_PATH = 300  # the ledger stores it as part of the sink's name


def _check_path(path: str) -> str:
    """Return the path if it can follow the URL of a connection. Raises a mistake if it cannot.

    A query is refused, too: it often has a token, and a secret does not belong into a file.
    """
    if len(path) <= _LONGEST_PATH and _PATH.fullmatch(path):
        return path
    fix = (
        "Write a relative path such as `orders/changes`; the rest of the URL, with its secrets, is in "
        "TIDEGATE_HTTP or TIDEGATE_HTTP_<CONNECTION>."
    )
    raise mistake(f"{path[:40]!r} is not a path that can be used", fix)


class HttpSink(SinkModel):
    """A sink that sends emissions to an endpoint, several in a request.

    The URL of the endpoint and its secrets are never in the file: set TIDEGATE_HTTP, or
    TIDEGATE_HTTP_<CONNECTION> in capitals for a `connection`.
    """

    examples: ClassVar[Mapping[str, str]] = {
        "batch_records": "batch_records: 100",
        "max_bytes": "max_bytes: 200_000",
        **EXAMPLES,
    }
    publisher = "tidegate.sinks.http.sink"
    target_field = "path"

    kind: Literal["http"] = Field(description="An endpoint that gets requests by POST.")
    path: Annotated[str, AfterValidator(_check_path)] | None = Field(
        default=None, description="The path behind the connection's URL. Null: that URL as it is."
    )
    connection: Annotated[str, AfterValidator(names.check_http_connection)] | None = Field(
        default=None, description="The endpoint, by its name. Null: TIDEGATE_HTTP."
    )
    format: Literal["json", "json_lines", "cloudevents"] = Field(
        default="json",
        description="The form of a request: a JSON array of emissions; a line for each; an array of events.",
    )
    cloudevents: Annotated[CloudEvents | None, AfterValidator(check_cloudevents)] = Field(
        default=None,
        description="With `cloudevents`: the mode and the attributes of events. A request in binary mode has "
        "one.",
    )
    batch_records: Annotated[StrictInt, Field(ge=1, le=100_000)] = Field(
        default=500, description="The largest number of emissions in a request."
    )
    max_bytes: Annotated[StrictInt, Field(ge=1_000, le=100_000_000)] = Field(
        default=1_000_000, description="The largest number of bytes of a request's body."
    )

    @property
    def name(self) -> str:
        """The sink's name, which is unique in the pipeline: `http:shop/orders`."""
        return f"http:{self.connection or ''}{f'/{self.path}' if self.path else ''}"

    @property
    def is_binary(self) -> bool:
        """Whether a request is one event in binary mode."""
        return self.cloudevents is not None and self.cloudevents.mode == "binary"

    @property
    def messages(self) -> MessageRules:
        """The rules of its emissions, whose values are JSON."""
        payload = Payload("json", self.with_key)
        return MessageRules(self.name, payload, None, "halt", "halt", {}, "timestamp")

    @property
    def connections(self) -> tuple[Connection, ...]:
        """The connection of its endpoint."""
        return (Connection("http", self.connection),)


MODEL = HttpSink
