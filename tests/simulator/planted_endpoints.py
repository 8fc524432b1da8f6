"""Planted bugs in what goes to an HTTP endpoint."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from tests.simulator.app import here
from tests.simulator.ledger import SimLeased
from tests.simulator.planted import planted
from tidegate.errors import SinkRefused
from tidegate.ledger import LeasedLedger, SinkProgress
from tidegate.sinks.http import requests, sink
from tidegate.sinks.http.endpoint import Answer, Endpoint
from tidegate.sinks.http.model import HttpSink
from tidegate.sinks.http.requests import EmissionRequest
from tidegate.sinks.http.sink import OpenEndpoint
from tidegate.sinks.outbox import Outbox

_emission_requests = sink.emission_requests
_idempotency_key = requests.idempotency_key
_send = Endpoint.send
_set_sink_progress = SimLeased.set_sink_progress


@planted((requests, "idempotency_key"))
def a_key_has_no_number(declared: HttpSink, outbox: Outbox, number: int) -> str:
    """Give all requests of a batch one key."""
    return _idempotency_key(declared, outbox, 1)


@planted((requests, "idempotency_key"))
def a_key_has_neither_batch_nor_attempt(declared: HttpSink, outbox: Outbox, number: int) -> str:
    return f"{outbox.plan.stream}/1/{number}/{declared.kind}"


@planted((requests, "idempotency_key"))
def each_try_has_a_key_of_its_own(declared: HttpSink, outbox: Outbox, number: int) -> str:
    return f"{_idempotency_key(declared, outbox, number)}-{len(here().world.trace)}"


@planted((sink, "emission_requests"))
def a_retry_cuts_the_requests_elsewhere(
    declared: HttpSink, outbox: Outbox, number: int = 0, records: int = 0
) -> Iterator[EmissionRequest]:
    least = declared.model_copy(update={"batch_records": 1})
    return _emission_requests(least if number else declared, outbox, number, records)


@planted((sink, "emission_requests"))
def a_retry_counts_its_requests_from_one(
    declared: HttpSink, outbox: Outbox, number: int = 0, records: int = 0
) -> Iterator[EmissionRequest]:
    return _emission_requests(declared, outbox, 0, records)


@planted((OpenEndpoint, "_send_rest"))
def progress_is_noted_before_the_answer(
    self: Any, lease: LeasedLedger, outbox: Outbox, progress: SinkProgress
) -> None:
    records, number = progress.records, progress.requests
    with self._endpoint() as endpoint:
        for request in _emission_requests(self.declared, outbox, number, records):
            records, number = records + request.records, request.number
            done = records == outbox.emitted
            acknowledged = replace(progress, requests=number, records=records, done=done)
            lease.set_sink_progress(self.name, acknowledged)
            endpoint.send(request, lease.renew)


@planted((OpenEndpoint, "publish"))
def progress_of_the_batch_before_counts(self: Any, lease: LeasedLedger, outbox: Outbox, last: int) -> None:
    """A batch begins where the one before has ended."""
    progress = lease.sink_progress(lease.stream, self.name)
    if progress is None or progress.seq < outbox.plan.seq:
        before = progress or SinkProgress(0, "", 0, 0, done=False)
        progress = replace(before, seq=outbox.plan.seq, attempt=outbox.attempt, done=False)
    if not progress.done:
        self._send_rest(lease, outbox, progress)


@planted((SimLeased, "set_sink_progress"))
def the_first_request_ends_its_batch(self: Any, name: str, progress: SinkProgress) -> None:
    _set_sink_progress(self, name, replace(progress, done=True))


@planted((Endpoint, "send"))
def a_request_without_an_answer_counts_as_sent(self: Any, request: EmissionRequest, renew: Any) -> None:
    answer = self._try(request)
    if not answer.is_acknowledged and not answer.is_unknown:
        raise self._refused(request, answer)


@planted((Endpoint, "send"))
def a_refused_request_is_left_out(self: Any, request: EmissionRequest, renew: Any) -> None:
    try:
        _send(self, request, renew)
    except SinkRefused:
        return


@planted((Endpoint, "_post"))
def an_answer_that_breaks_off_counts(self: Any, request: EmissionRequest) -> Answer:
    """The status is there, and the rest of the answer is not read."""
    with self._client.stream("POST", self._url, content=request.body, headers=request.headers) as response:
        return Answer(response.status_code, "")
