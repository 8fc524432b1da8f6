"""Send statements and rows to a server of ClickHouse by HTTP, and turn its errors into those of tidegate."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import httpx2 as httpx
import pyarrow as pa

from tidegate.errors import SinkRefused, SinkUnavailable, TidegateError
from tidegate.sinks.web import HttpConfig

_SETTINGS: Mapping[str, str | int] = {
    # the status of an answer says whether the statement has succeeded: it comes at the end
    "wait_end_of_query": 1,
    # a server that only queues rows would acknowledge what it can still lose
    "async_insert": 0,
    # rows that were deleted and come again are not the same insert that a client has repeated
    "insert_deduplicate": 0,
    # a null is not 0 or an empty text
    "input_format_null_as_default": 0,
    "output_format_json_quote_64bit_integers": 0,
    # a deletion of rows is over when the statement is
    "mutations_sync": 2,
    # an erasure deletes the keys that the table has of its batch, so that no statement contains them
    "allow_nondeterministic_mutations": 1,
}
"""Settings of each statement, which otherwise are those of the user's profile."""
_PASSING = {
    # the request broke off; the server, its disk, its network, its store or its keeper has trouble
    *(3, 32, 33, 74, 75, 95, 96, 198, 209, 210, 225, 236, 242, 243, 279, 285, 286, 319, 425, 499, 722, 999),
    # it has too much to do
    *(159, 160, 202, 203, 241, 252, 341, 364, 394, 439, 473, 692, 700, 745, 1000),
}
"""The codes of errors that pass by themselves."""


class Server:
    """An opened connection to a server.

    Every method raises SinkRefused for an error that stays, SinkUnavailable for one that passes, and
    SettingsInvalid for certificates.
    """

    def __init__(self, config: HttpConfig, client: httpx.Client) -> None:
        self._config = config
        self._client = client

    def rows(self, query: str) -> list[list[Any]]:
        """Return the rows of a query."""
        lines = self._post({}, f"{query} FORMAT JSONCompactEachRow".encode()).splitlines()
        return [json.loads(line) for line in lines if line]

    def run(self, statement: str) -> None:
        """Run a statement without a result."""
        self._post({}, statement.encode())

    def insert(self, table: str, rows: pa.Table) -> None:
        """Insert rows into the columns that have their names."""
        body = pa.BufferOutputStream()
        with pa.ipc.new_stream(body, rows.schema) as stream:
            stream.write_table(rows)
        columns = ", ".join(map(quoted_name, rows.column_names))
        statement = f"INSERT INTO {table} ({columns}) FORMAT ArrowStream"
        self._post({"query": statement}, body.getvalue().to_pybytes())

    def _post(self, options: Mapping[str, str], body: bytes) -> str:
        url = httpx.URL(self._config.url(None)).copy_merge_params({**_SETTINGS, **options})
        try:
            response = self._client.post(url, content=body)
        except (httpx.TransportError, ConnectionError) as error:
            refusal = self._config.without_tls(error)
            raise refusal or self._unavailable(
                f"does not answer ({self._config.shown(str(error))})"
            ) from None
        if response.status_code == httpx.codes.OK:
            return response.text
        raise self._error(response) from None

    def _error(self, response: httpx.Response) -> TidegateError:
        code = int(response.headers.get("x-clickhouse-exception-code", 0))
        text = self._config.shown(response.text.partition("(version ")[0])
        what = f"answers {response.status_code}: {text}"
        is_refusal = response.status_code < 500 if not code else code not in _PASSING
        if not is_refusal:
            return self._unavailable(what)
        return SinkRefused(
            f"The server of {self._config.variable} ({self._config.place}) refuses a statement: {what}",
            f"Correct the URL or the login in {self._config.variable}, its rights or the table; then run "
            "again: nothing is lost, and rows that come again are the same rows.",
        )

    def _unavailable(self, what: str) -> SinkUnavailable:
        return SinkUnavailable(
            f"The server of {self._config.variable} ({self._config.place}) {what}",
            f"Check that it runs, and that {self._config.variable} has its address; then run again: nothing "
            "is lost, and rows that come again are the same rows.",
        )


@contextmanager
def opened(config: HttpConfig) -> Iterator[Server]:
    """Open a connection, which connects with the first statement.

    Example::

        with opened(HttpConfig.parse("https://me:secret@host:8443", "TIDEGATE_CLICKHOUSE")) as server:
            server.rows("SELECT 1")  # [[1]]
    """
    with config.client() as client:
        yield Server(config, client)


def quoted_name(name: str) -> str:
    """Return a name as a statement has it.

    >>> quoted_name("a`b")
    '`a\\\\`b`'
    """
    escaped = name.replace("\\", "\\\\").replace("`", "\\`")
    return f"`{escaped}`"


def quoted_text(text: str) -> str:
    """Return a text as a statement has it.

    >>> quoted_text("it's")
    "'it\\\\'s'"
    """
    escaped = text.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"
