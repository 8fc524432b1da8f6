"""Publish to an endpoint: the requests of a batch in order, one in flight, each until it is acknowledged.

An endpoint has no transactions, so the progress is in the ledger: after each acknowledged request, under the
stream's lease. A process that dies before that sends its last request again, with the same bytes and the same
idempotency key; so does a process that loses its lease while a request is on its way. A receiver that stores
the keys has each emission once, and those of a key in order.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cached_property

from tidegate.errors import RecordTooLarge
from tidegate.ledger import LeasedLedger, SinkProgress
from tidegate.model.connection import Connection
from tidegate.sinks.http.endpoint import Endpoint
from tidegate.sinks.http.model import HttpSink
from tidegate.sinks.http.requests import emission_requests, form_of, largest_part
from tidegate.sinks.outbox import Outbox
from tidegate.sinks.port import Dataset, OpenSink, require_not_ahead
from tidegate.sinks.web import HttpConfig


class OpenEndpoint(OpenSink[HttpSink]):
    """Sends a batch request by request. Progress and ledger cannot be lost separately."""

    title = "HTTP"

    @property
    def dataset(self) -> Dataset:
        """The endpoint, without the path of its connection, which can be a secret."""
        return Dataset(self._config.place, self.name.removeprefix("http:") or "/")

    def check_settings(self) -> None:
        """Check that the endpoint is set, and its certificates can be used. Raises SettingsInvalid."""
        _ = self._config

    def check_target(self) -> None:
        """Check that the endpoint can be connected to. Sends no request."""
        self._endpoint().reach()

    def warnings(self) -> Iterable[str]:
        """Yield a sentence if a secret would go over the network unencrypted."""
        if (exposure := self._config.exposure) is not None:
            yield exposure

    def check_outbox(self, outbox: Outbox) -> None:
        """Check that each emission fits into a request, and that the endpoint can be connected to.

        Raises RecordTooLarge; SinkUnavailable or SettingsInvalid if it does not answer.
        """
        form = form_of(self.declared)
        room = self.declared.max_bytes - len(form.before + form.between + form.behind)
        largest = largest_part(self.declared, outbox, room)
        if largest > room:
            raise RecordTooLarge(
                f"An emission for {self.name} has {largest} bytes; a request has room for {room}",
                "Raise `max_bytes` of the sink, or select fewer columns; nothing was published.",
            )
        self._endpoint().reach()

    def publish(self, lease: LeasedLedger, outbox: Outbox, last_published: int) -> None:
        """Send the requests that are not acknowledged yet. Raises SinkAhead if a newer publisher has sent."""
        seq, attempt = outbox.plan.seq, outbox.attempt
        progress = lease.sink_progress(lease.stream, self.name)
        if progress is None or progress.seq < seq:
            progress = SinkProgress(seq, attempt, 0, 0, done=False)
        require_not_ahead(self.shard, self.name, seq, progress.seq)
        if not progress.done:
            self._send_rest(lease, outbox, progress)

    def _send_rest(self, lease: LeasedLedger, outbox: Outbox, progress: SinkProgress) -> None:
        seq, attempt = outbox.plan.seq, outbox.attempt
        records, number = progress.records, progress.requests
        with self._endpoint() as endpoint:
            for request in emission_requests(self.declared, outbox, number, records):
                endpoint.send(request, lease.renew)
                records, number = records + request.records, request.number
                done = records == outbox.emitted
                # Before the next request: a process without the lease must not send it.
                lease.set_sink_progress(self.name, SinkProgress(seq, attempt, number, records, done))

    def erasure_effect(self) -> str:
        """Return a sentence on the deletions, which the receiver has to apply."""
        return (
            f"{self.name}: a deletion of each key is sent. What the receiver keeps of earlier requests is "
            "its own matter."
        )

    def restart_effect(self, seq: int) -> str:
        """Return a sentence on requests of later batches, which a receiver recognizes by their keys."""
        return (
            f"{self.name}: requests of batches after {seq} come again with the keys that they had; a "
            "receiver that stores the keys ignores those that it has."
        )

    def restart_after(self, lease: LeasedLedger, seq: int) -> str | None:
        """Set the progress in the ledger."""
        lease.set_sink_progress(self.name, SinkProgress(seq, self._attempt_name(seq), 0, 0, done=True))
        return None

    def seal(self, lease: LeasedLedger, seq: int) -> int:
        """Set the progress in the ledger, and return the number of emissions of acknowledged requests.

        A request that was refused or not answered is not counted, although the endpoint may have it.
        """
        progress = lease.sink_progress(lease.stream, self.name)
        if progress is None or progress.seq < seq:
            progress = SinkProgress(seq, self._attempt_name(seq), 0, 0, done=True)
        elif progress.seq == seq and not progress.done:
            progress = SinkProgress(seq, progress.attempt, progress.requests, progress.records, done=True)
        lease.set_sink_progress(self.name, progress)
        return progress.records if progress.seq == seq else 0

    def _endpoint(self) -> Endpoint:
        return Endpoint(self._config, self.declared.path)

    @cached_property
    def _config(self) -> HttpConfig:
        name = self.declared.connection
        return HttpConfig.parse(self.context.settings.http(name), Connection("http", name).variable)


SINK = OpenEndpoint
