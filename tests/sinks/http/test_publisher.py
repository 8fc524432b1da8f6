"""Emissions at an endpoint that stores the keys: each once, in order, whatever happens to an answer."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from contextlib import nullcontext, suppress
from datetime import datetime, timedelta, timezone
from email.utils import format_datetime
from pathlib import Path
from typing import Any

import pytest

from tests.batch.committed import Committed
from tests.sinks.http.receiver import Endpoint
from tidegate import inspect
from tidegate.batch import check_progress, validate_batch
from tidegate.errors import Fenced, RecordTooLarge, SinkBusy, SinkRefused, SinkUnavailable, TidegateError
from tidegate.failpoints import FailpointRaised, ReplyLost
from tidegate.ledger import SinkProgress
from tidegate.recovery import Situation
from tidegate.recovery.remedy import Options
from tidegate.recovery.sinks import SendAgain
from tidegate.recovery.unsent import GiveUp

ROWS = [("1", 10), ("22", 20), ("1", 11), ("1", None), ("22", 21)]
EMITTED = [("1", '{"n": 10}'), ("22", '{"n": 20}'), ("1", '{"n": 11}'), ("1", "null"), ("22", '{"n": 21}')]
REQUESTS = 3
"""Requests of a batch with ROWS."""


def publish_all(committed: Committed) -> None:
    committed.commit(1, {"first": ROWS})
    committed.publish(1)


def test_batch_goes_out_in_several_requests(committed: Committed, endpoint: Endpoint) -> None:
    publish_all(committed)
    assert endpoint.emissions() == EMITTED
    assert [key.rsplit("/", 1)[0] for key in endpoint.idempotency_keys()] == [
        "visitors/1/1/1",
        "visitors/1/1/2",
        "visitors/1/1/3",
    ]
    assert [len(json.loads(body)) for body in endpoint.bodies()] == [2, 2, 1]
    assert endpoint.bodies()[1] == (
        b'[{"key":"1","timestamp":2,"value":{"n": 11}},{"key":"1","timestamp":3,"value":null}]'
    )
    assert endpoint.arrivals[0][2]["content-type"] == "application/json"


def test_published_batch_is_not_sent_again(committed: Committed, endpoint: Endpoint) -> None:
    publish_all(committed)
    assert committed.publish(1) == {"http:/orders": 5}
    assert len(endpoint.arrivals) == REQUESTS


def test_lines_end_at_the_largest_size(tmp_path: Path, endpoint: Endpoint) -> None:
    sink = "  - {kind: http, stage: first, format: json_lines, max_bytes: 1000}"
    committed = Committed(tmp_path, sink, http=endpoint.url)
    committed.commit(1, {"first": [(str(number), number) for number in range(100)]})
    endpoint.script = [400]  # the receiver of the page reads arrays
    with pytest.raises(SinkRefused):
        committed.publish(1)
    (body,) = endpoint.bodies()
    lines = body.splitlines()
    assert 900 < len(body) <= 1000
    assert [json.loads(line)["key"] for line in lines] == [str(number) for number in range(len(lines))]


UNKNOWN = [(0, 408), (1, 425), (2, 429), (1, 503), (0, "reset"), (1, "reset_after"), (2, "reset_after")]


@pytest.mark.parametrize(("place", "act"), UNKNOWN)
def test_unknown_outcome_is_sent_again_with_its_key(
    committed: Committed, endpoint: Endpoint, pauses: list[float], place: int, act: Any
) -> None:
    endpoint.script = ["right"] * place + [act, act]
    publish_all(committed)
    assert endpoint.emissions() == EMITTED
    assert len(endpoint.arrivals) == REQUESTS + 2
    repeated = endpoint.arrivals[place : place + 3]
    assert len({(key, body) for key, body, _ in repeated}) == 1
    assert [0.25 <= pauses[0] <= 0.5, 0.5 <= pauses[1] <= 1.0] == [True, True]


def shortly() -> str:
    return format_datetime(datetime.now(timezone.utc) + timedelta(seconds=20), usegmt=True)


@pytest.mark.parametrize(
    ("written", "least", "most"), [(lambda: "7", 7, 7), (shortly, 15, 20), (lambda: "soon", 0.25, 0.5)]
)
def test_endpoint_chooses_the_pause(
    committed: Committed,
    endpoint: Endpoint,
    pauses: list[float],
    written: Callable[[], str],
    least: float,
    most: float,
) -> None:
    endpoint.script = [(429, {"Retry-After": written()})]
    publish_all(committed)
    (pause,) = pauses
    assert least <= pause <= most


def test_longer_pause_is_left_to_airflow(
    committed: Committed, endpoint: Endpoint, pauses: list[float]
) -> None:
    endpoint.script = ["right", (503, {"Retry-After": "31"})]
    with pytest.raises(SinkBusy, match="answers 503: not now, and asks for 31 s") as busy:
        publish_all(committed)
    assert busy.value.pause_s == 31
    assert pauses == []
    committed.publish(1)
    assert endpoint.emissions() == EMITTED
    assert len(set(endpoint.idempotency_keys())) == REQUESTS


def test_tries_end_and_the_next_run_goes_on(committed: Committed, endpoint: Endpoint) -> None:
    endpoint.script = ["right"] + [500] * 6
    with pytest.raises(SinkUnavailable, match="answers 500: not now"):
        publish_all(committed)
    assert len(endpoint.arrivals) == 7
    committed.publish(1)
    assert endpoint.emissions() == EMITTED
    assert len(endpoint.arrivals) == 9, "the first request is not sent again"


@pytest.mark.parametrize("status", [400, 401, 404, 422])
def test_refusal_leaves_the_batch_decided(committed: Committed, endpoint: Endpoint, status: int) -> None:
    endpoint.script = ["right", (status, {}, "field `n`\nis\0 unknown")]
    with pytest.raises(SinkRefused, match=f"visitors/1/1/2/.* with status {status}: field `n` is unknown"):
        publish_all(committed)
    failure = committed.app.ledger.failure(committed.stream, 1)
    assert failure is not None
    assert (failure.step, failure.error) == ("publish", "SinkRefused")
    assert committed.app.ledger.publications(committed.stream, 1) == {}
    committed.publish(1)
    assert endpoint.emissions() == EMITTED
    assert len(endpoint.arrivals) == REQUESTS + 1


@pytest.mark.parametrize(
    ("status", "remedy"),
    [
        (401, "Correct the login"),
        (403, "the right to post"),
        (404, "Correct the URL in TIDEGATE_HTTP"),
        (405, "let the receiver take POST"),
        (413, "Raise the receiver's limit"),
        (415, "take this content type"),
        (422, "Correct TIDEGATE_HTTP or the receiver"),
    ],
)
def test_refusal_says_what_to_correct(
    committed: Committed, endpoint: Endpoint, status: int, remedy: str
) -> None:
    endpoint.script = [status]
    with pytest.raises(SinkRefused, match=rf"status {status}: .*{remedy}") as refused:
        publish_all(committed)
    assert str(refused.value).count("--choose give-up") == 1


@pytest.mark.parametrize("status", [302, 308])
def test_no_redirect_is_followed(
    committed: Committed, endpoint: Endpoint, status: int, tmp_path: Path
) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    with Endpoint(elsewhere).running() as other:
        endpoint.script = [(status, {"Location": f"{other.url}/orders"})]
        with pytest.raises(SinkRefused, match=f"status {status}.*is a redirect"):
            publish_all(committed)
        assert other.arrivals == []


def test_slow_endpoint_is_asked_again(tmp_path: Path, endpoint: Endpoint, pauses: list[float]) -> None:
    http = json.dumps({"url": endpoint.url, "timeout.seconds": 0.5})
    committed = Committed(tmp_path, "  - {kind: http, stage: first}", http=http)
    endpoint.script = ["slow"]
    publish_all(committed)
    assert len(pauses) >= 1
    assert endpoint.emissions() == EMITTED
    assert len(set(endpoint.idempotency_keys())) == 1


def test_emission_that_is_too_large_halts_its_batch(tmp_path: Path, endpoint: Endpoint) -> None:
    sink = "  - {kind: http, stage: first, max_bytes: 1000}"
    committed = Committed(tmp_path, sink, http=endpoint.url)
    plan = committed.compute(1, {"first": [("k" * 2000, 1)], "second": []})
    with pytest.raises(RecordTooLarge, match=r"http: has 2\d+ bytes; a request has room for 997"):
        validate_batch(committed.app, plan, "test")
    assert endpoint.arrivals == []


@pytest.mark.parametrize(
    ("rows", "is_refused"),
    [
        ([("k" * 900, None)], False),
        ([("k" * 2_000, None), ("1", 1)], True),  # a deletion has a key, too
        ([("\x01" * 150, 1)], False),
        ([("\x01" * 220, 1)], True),  # 1,320 bytes as JSON
        ([("1", 1), ("é" * 150, 1)], False),
        ([("1", 1), ("é" * 700, 1)], True),
    ],
)
@pytest.mark.parametrize("form", ["json", "json_lines", "cloudevents"])
def test_check_refuses_what_no_request_holds(
    tmp_path: Path, endpoint: Endpoint, rows: list[tuple[str, int | None]], is_refused: bool, form: str
) -> None:
    room = 1_300 if form == "cloudevents" else 1_000  # for the attributes of an event
    sink = f"  - {{kind: http, stage: first, format: {form}, max_bytes: {room}}}"
    committed = Committed(tmp_path, sink, http=endpoint.url)
    plan = committed.compute(1, {"first": rows, "second": []})
    with pytest.raises(RecordTooLarge) if is_refused else nullcontext():
        validate_batch(committed.app, plan, "test")


def test_check_encodes_no_emission_that_fits(committed: Committed, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tidegate.sinks.http.requests.request_parts", lambda *_: pytest.fail("encoded"))
    plan = committed.compute(1, {"first": ROWS, "second": []})
    validate_batch(committed.app, plan, "test")


def test_plain_endpoint_loads_no_authorities(committed: Committed, monkeypatch: pytest.MonkeyPatch) -> None:
    loaded: list[str] = []
    monkeypatch.setattr("ssl.SSLContext.load_default_certs", lambda *_: loaded.append("default"))
    monkeypatch.setattr("ssl.SSLContext.load_verify_locations", lambda *_, **__: loaded.append("file"))
    publish_all(committed)
    assert loaded == []


def test_unreachable_endpoint_halts_before_the_decision(tmp_path: Path) -> None:
    committed = Committed(tmp_path, "  - {kind: http, stage: first}", http="http://127.0.0.1:1")
    plan = committed.compute(1, {"first": ROWS, "second": []})
    with pytest.raises(SinkUnavailable, match=r"127\.0\.0\.1:1 does not answer \(Connection refused\)"):
        validate_batch(committed.app, plan, "test")
    (error,) = inspect.sink_errors(committed.app, committed.pipeline)
    assert isinstance(error, SinkUnavailable)
    assert "does not answer" in str(error)


def test_doctor_connects_and_sends_nothing(committed: Committed, endpoint: Endpoint) -> None:
    assert inspect.sink_errors(committed.app, committed.pipeline) == []
    check_progress(committed.app, committed.stream)
    assert inspect.sink_warnings(committed.app, committed.pipeline) == []
    assert endpoint.arrivals == []


FAULTS = [
    *(f"http.send={action}@{hit}" for action in ("raise", "lose") for hit in (1, 3)),
    *(f"ledger.set_sink_progress={action}@{hit}" for action in ("raise", "lose") for hit in (2, 3)),
    *(f"ledger.sink_progress={action}" for action in ("raise", "lose")),
    *(f"ledger.add_publication={action}" for action in ("raise", "lose")),
]


@pytest.mark.parametrize("fault", FAULTS)
def test_each_step_can_fail(
    committed: Committed, endpoint: Endpoint, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, fault: str
) -> None:
    committed.commit(1, {"first": ROWS})
    fired = tmp_path / "fired"
    monkeypatch.setenv("TIDEGATE_FAILPOINTS", fault)
    monkeypatch.setenv("TIDEGATE_FAILPOINTS_FIRED", str(fired))
    for _ in range(3):
        with suppress(FailpointRaised, ReplyLost, TidegateError):
            committed.publish(1)
            break
    assert fired.read_text(), "the fault happened"
    assert endpoint.emissions() == EMITTED
    assert len(set(endpoint.idempotency_keys())) == REQUESTS
    assert len({(key, body) for key, body, _ in endpoint.arrivals}) == REQUESTS, "a key has one content"
    assert committed.publish(1) == {"http:/orders": 5}


PUBLISH = """
from tidegate.app import App
from tidegate.batch import publish_batch
from tidegate.ledger import Stream
app = App.from_environment()
publish_batch(app, app.ledger.plan(Stream("visitors", 1), 1), "test")
"""


def kill_publisher(committed: Committed, point: str) -> None:
    """Commit a batch, and let a process that publishes it be killed at a failpoint."""
    committed.commit(1, {"first": ROWS})
    # A fork of this process, which has threads of Arrow and of the receiver, can hang.
    command = [sys.executable, "-c", PUBLISH]
    environment = {**os.environ, **committed.environment, "TIDEGATE_FAILPOINTS": point}
    killed = subprocess.run(command, env=environment, timeout=600, capture_output=True, check=False)
    assert killed.returncode == -signal.SIGKILL, killed.stderr[-2000:]


KILLS = [
    *(
        f"{point}={action}@{hit}"
        for point in ("http.send", "ledger.set_sink_progress")
        for action in ("kill", "kill_after")
        for hit in range(1, REQUESTS + 1)
    ),
    *(f"{point}=kill" for point in ("ledger.sink_progress", "ledger.add_publication")),
]


@pytest.mark.long
@pytest.mark.parametrize("point", KILLS)
def test_kill_anywhere_sends_each_emission_once(committed: Committed, endpoint: Endpoint, point: str) -> None:
    kill_publisher(committed, point)
    assert committed.publish(1) == {"http:/orders": 5}
    assert endpoint.emissions() == EMITTED
    assert len({(key, body) for key, body, _ in endpoint.arrivals}) == REQUESTS, "a key has one content"


@pytest.mark.process
@pytest.mark.parametrize("point", ["http.send=kill_after@2", "ledger.set_sink_progress=kill@2"])
@pytest.mark.sample(1)
def test_killed_process_sends_no_emission_twice(committed: Committed, endpoint: Endpoint, point: str) -> None:
    kill_publisher(committed, point)
    assert len(endpoint.arrivals) == 2
    committed.publish(1)
    assert endpoint.emissions() == EMITTED
    assert endpoint.idempotency_keys()[1] == endpoint.idempotency_keys()[2]
    assert len(endpoint.arrivals) == REQUESTS + 1


def test_backlog_goes_out_in_order(committed: Committed, endpoint: Endpoint) -> None:
    for seq in (1, 2, 3):
        committed.commit(seq, {"first": [("1", seq * 10), ("22", seq), ("1", seq * 10 + 1)]})
        if seq < 3:
            endpoint.script = [503] * 6 if seq == 1 else []
            try:
                committed.publish(seq)
            except SinkUnavailable:
                committed.publish(seq)
    committed.publish(3)
    of_key = [value for key, value in endpoint.emissions() if key == "1"]
    assert of_key == [f'{{"n": {number}}}' for number in (10, 11, 20, 21, 30, 31)]


def test_two_sinks_of_an_endpoint_have_other_keys(tmp_path: Path, endpoint: Endpoint) -> None:
    sinks = "  - {kind: http, path: a, stage: first}\n  - {kind: http, path: b, stage: first}"
    committed = Committed(tmp_path, sinks, http=endpoint.url)
    publish_all(committed)
    assert len(set(endpoint.idempotency_keys())) == 2
    assert len(endpoint.emissions()) == 2 * len(ROWS)


def test_refused_batch_can_be_given_up(committed: Committed, endpoint: Endpoint) -> None:
    endpoint.script = ["right", 422, 422]
    with pytest.raises(SinkRefused):
        publish_all(committed)
    proposal = GiveUp().propose(Situation(committed.app, committed.stream))
    assert proposal is not None
    assert "SinkRefused" in " ".join(proposal.carry_out())
    (given_up,) = committed.app.ledger.given_up(committed.stream)
    assert (given_up.sent, given_up.records) == (2, 5)
    committed.commit(2, {"first": [("1", 12)]})
    committed.publish(2)
    assert endpoint.emissions() == [*EMITTED[:2], ("1", '{"n": 12}')]


def test_batches_come_again_with_their_keys(committed: Committed, endpoint: Endpoint) -> None:
    publish_all(committed)
    options = Options(sinks=("http:/orders",), from_batch=1)
    proposal = SendAgain().propose(Situation(committed.app, committed.stream, options))
    assert proposal is not None
    assert any("with the keys that they had" in effect for effect in proposal.effects)
    proposal.carry_out()
    assert endpoint.idempotency_keys()[:REQUESTS] == endpoint.idempotency_keys()[REQUESTS:]
    assert endpoint.bodies()[:REQUESTS] == endpoint.bodies()[REQUESTS:]
    assert endpoint.emissions() == EMITTED
    progress = committed.app.ledger.sink_progress(committed.stream, "http:/orders")
    assert progress == SinkProgress(1, committed.attempt_name(1), REQUESTS, 5, done=True)


def test_newer_run_stops_the_older_one(
    committed: Committed, endpoint: Endpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    committed.commit(1, {"first": ROWS})
    monkeypatch.setenv("TIDEGATE_FAILPOINTS", "http.send=raise@2")
    with pytest.raises(FailpointRaised):
        committed.publish(1)
    monkeypatch.delenv("TIDEGATE_FAILPOINTS")
    old = committed.lease  # raised by `commit`, before `publish` took a newer one
    committed.publish(1)
    (sink,) = committed.app.sinks(committed.stream, committed.pipeline)
    plan, attempt = old.plan(committed.stream, 1), old.attempt(committed.stream, 1)
    assert plan is not None
    assert attempt is not None
    sink.publish(old, sink.outbox(plan, attempt), 1)
    assert endpoint.emissions() == EMITTED
    assert len(endpoint.arrivals) == REQUESTS


def test_process_that_was_overtaken_in_a_pause_stops(
    committed: Committed, endpoint: Endpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    committed.commit(1, {"first": ROWS})

    def overtake(_: float) -> None:
        committed.app.ledger.acquire(committed.stream, "test")

    monkeypatch.setattr("tidegate.sinks.http.endpoint.sleep", overtake)
    endpoint.script = [503]
    with pytest.raises(Fenced):
        committed.publish(1)
    assert len(endpoint.arrivals) == 1
    committed.publish(1)
    assert endpoint.emissions() == EMITTED
