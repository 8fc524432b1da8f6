"""Both clients reach a real broker in every way of docs/connect-to-kafka.md, and refuse other ways."""

from __future__ import annotations

import time
from collections.abc import Mapping
from uuid import uuid4

import pytest
from kafka.admin import NewTopic

from kafka import KafkaAdminClient
from tests.attempts import committed
from tests.kafka.batches import batches_of, begin, message
from tests.sampling import sampled
from tests.secured import CALLBACK, CANARY, KINDS, PASSWORD, SecuredBroker, token
from tests.waits import give_up_soon
from tidegate.errors import BrokerUnavailable, SettingsInvalid, TidegateError
from tidegate.kafka.config import KafkaConfig, TokenSource, token_source
from tidegate.kafka.log import KafkaLog
from tidegate.kafka.publisher import DecidedBatch, KafkaPublisher
from tidegate.kafka.records import Slice, read_slice

VARIABLE = "TIDEGATE_KAFKA_SHOP"
SAMPLE = ("mutual TLS, texts", "SCRAM-SHA-512 by TLS", "OAUTHBEARER by TLS")
pytestmark = [pytest.mark.broker, pytest.mark.usefixtures("told_soon")]


@pytest.fixture
def told_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Clients give up after seconds, and the callbacks here may be called."""
    monkeypatch.setenv("TIDEGATE_PYTHON_MODULES", "tests.secured")
    token_source.cache_clear()
    give_up_soon(monkeypatch, 5)


@pytest.fixture
def topic(secured: SecuredBroker) -> str:
    name = f"t-{uuid4().hex[:8]}"
    admin = KafkaAdminClient(bootstrap_servers=secured.bootstrap_servers)
    admin.create_topics([NewTopic(name, 1, 1)])
    admin.close()
    return name


@pytest.mark.parametrize("kind", sampled(KINDS, SAMPLE))
@pytest.mark.sample(1)
def test_what_one_client_publishes_the_other_reads(secured: SecuredBroker, topic: str, kind: str) -> None:
    config = KafkaConfig.from_dict(KINDS[kind](secured))
    with KafkaLog(config) as log:
        log.ensure_progress_topic()
        publisher = KafkaPublisher(log, f"shard-{topic}", topic, committed())
        begin(publisher, 1)
        messages = [message(b"a", b"1"), message(b"b", b"2")]
        assert publisher.publish(DecidedBatch(1, "attempt", batches_of(messages)), 0) == 2
        await_stable_ends(log, topic, {0: 3})
        progress = publisher.progress()
        assert progress is not None
        assert (progress.seq, progress.done) == (1, True)
    read = [record.value() for block in read_slice(config, Slice(topic, 0, 0, 3), 20.0) for record in block]
    assert read == [b"1", b"2"]


def await_stable_ends(log: KafkaLog, topic: str, ends: dict[int, int]) -> None:
    """A transaction that is committed is stable once the broker has written its marker: a moment later."""
    deadline = time.monotonic() + 300
    while (stable := log.view(topic).stable_ends) != ends:
        assert time.monotonic() < deadline, stable
        time.sleep(0.05)


def read_all(config: KafkaConfig, topic: str) -> None:
    for _ in read_slice(config, Slice(topic, 0, 0, 1), 5.0):
        pass


def asked(properties: Mapping[str, str], topic: str) -> TidegateError:
    """Return the error of kafka-python's client as tidegate raises it."""
    with (
        KafkaLog(KafkaConfig.from_dict(properties, VARIABLE)) as log,
        pytest.raises(TidegateError) as caught,
    ):
        log.view(topic)
    assert VARIABLE in str(caught.value)
    assert CANARY not in str(caught.value)
    return caught.value


WRONG = {
    "PLAIN by TLS": {"sasl.password": f"{CANARY}-wrong"},
    "SCRAM-SHA-512 by TLS": {"sasl.password": f"{CANARY}-wrong"},
    "SCRAM-SHA-256 by TLS": {"sasl.username": f"{CANARY}-nobody"},
}


@pytest.mark.parametrize("kind", sampled(WRONG, SAMPLE))
def test_wrong_login_is_a_settings_error(secured: SecuredBroker, topic: str, kind: str) -> None:
    properties = KINDS[kind](secured) | WRONG[kind]
    began = time.monotonic()
    error = asked(properties, topic)
    assert (type(error), "refuses this login" in str(error)) == (SettingsInvalid, True)
    with pytest.raises(SettingsInvalid, match="refuses this login"):
        read_all(KafkaConfig.from_dict(properties), topic)
    assert time.monotonic() - began < 20


def test_unknown_certificate_authority_is_reported(secured: SecuredBroker, topic: str) -> None:
    other = {"ssl.truststore.certificates": secured.stranger.own.text}
    error = asked(KINDS["TLS, a text"](secured) | other, topic)
    assert (type(error), "by TLS: unable to get local issuer" in str(error)) == (SettingsInvalid, True)


def test_certificate_of_another_host_is_reported_if_verified(secured: SecuredBroker, topic: str) -> None:
    own = KINDS["TLS, a file"](secured)
    elsewhere = own | {"bootstrap.servers": f"127.0.0.2:{secured.ports['ELSEWHERE']}"}
    error = asked(elsewhere, topic)
    assert (type(error), "IP address mismatch" in str(error)) == (SettingsInvalid, True)
    for algorithm in ("", "none"):
        config = KafkaConfig.from_dict(elsewhere | {"ssl.endpoint.identification.algorithm": algorithm})
        with KafkaLog(config) as log:
            assert log.view(topic).ends == {0: 0}


def test_missing_client_certificate_is_reported(secured: SecuredBroker, topic: str) -> None:
    error = asked(secured.reached("MUTUAL", ssl__ca__pem=secured.authority.own.text), topic)
    assert (type(error), "CERTIFICATE" in error.what.upper()) == (SettingsInvalid, True)


def test_tls_to_a_plain_listener_is_reported(secured: SecuredBroker, topic: str) -> None:
    plain = {"bootstrap.servers": secured.bootstrap_servers}
    error = asked(KINDS["TLS, a file"](secured) | plain, topic)
    assert (type(error), "security.protocol is that of this listener" in error.fix) == (SettingsInvalid, True)


@pytest.mark.parametrize("listener", ["TLS", "LOGIN"])
@pytest.mark.sample(1)
def test_listener_that_requires_more_names_the_setting(
    secured: SecuredBroker, topic: str, listener: str
) -> None:
    error = asked({"bootstrap.servers": f"127.0.0.1:{secured.ports[listener]}"}, topic)
    assert (type(error), "the listener's security.protocol" in error.fix) == (BrokerUnavailable, True)


def test_a_login_where_nobody_logs_in_is_reported(secured: SecuredBroker, topic: str) -> None:
    asked(KINDS["PLAIN"](secured) | {"bootstrap.servers": secured.bootstrap_servers}, topic)


class TestTokens:
    """OAUTHBEARER."""

    def tokens(self, secured: SecuredBroker, callback: str) -> KafkaConfig:
        kind = KINDS["OAUTHBEARER by TLS"](secured)
        return KafkaConfig.from_dict(kind | {"sasl.oauthbearer.callback": callback})

    @pytest.mark.parametrize(
        ("callback", "error", "says"),
        [
            ("tests.secured:failing_token", BrokerUnavailable, "failing_token.*failed: ValueError"),
            ("tests.secured:no_token", SettingsInvalid, "gave no token"),
            ("tests.secured:nowhere", SettingsInvalid, "no function tests.secured:nowhere"),
        ],
    )
    def test_token_function_without_token_fails_at_once(
        self, secured: SecuredBroker, topic: str, callback: str, error: type[Exception], says: str
    ) -> None:
        config = self.tokens(secured, callback)
        began = time.monotonic()
        with KafkaLog(config) as log:
            for ask in (lambda: log.view(topic), lambda: read_all(config, topic)):
                with pytest.raises(error, match=says) as caught:
                    ask()
                assert CANARY not in repr(caught.value) + str(caught.value.__cause__)
                assert caught.value.__suppress_context__ or CANARY not in str(caught.value.__context__)
        assert time.monotonic() - began < 5

    def test_refused_token_is_a_settings_error(
        self, secured: SecuredBroker, topic: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("tests.secured.token", lambda _: ("not-a-token", time.time() + 60))
        config = self.tokens(secured, CALLBACK)
        with KafkaLog(config) as log, pytest.raises(SettingsInvalid, match="refuses this login"):
            log.view(topic)

    def test_token_is_used_for_most_of_its_life(self, monkeypatch: pytest.MonkeyPatch) -> None:
        lives = iter((0.25, 60.0))
        given: list[str] = []

        def short(config: str) -> tuple[str, float, str, dict[str, str]]:
            given.append(config)
            return f"token {len(given)}", time.time() + next(lives), "alice", {"team": "shop"}

        monkeypatch.setattr("tests.secured.token", short)
        source = TokenSource(CALLBACK, "config")
        assert [source.token().text, source.token().text] == ["token 1", "token 1"]
        time.sleep(0.25)
        assert source.for_librdkafka("")[0] == source.for_python().token() == "token 2"
        assert source.for_librdkafka("")[2:] == ("alice", {"team": "shop"})
        assert source.for_python().extensions() == {"team": "shop"}
        assert given == ["config", "config"]
        assert "token" not in repr(source.token())

    def test_token_function_satisfies_kafka(self) -> None:
        assert token(f"user={CANARY}-client")[0].count(".") == 2


def test_missing_file_is_reported_by_each_client(secured: SecuredBroker, topic: str) -> None:
    config = KafkaConfig.from_dict(KINDS["TLS, a file"](secured) | {"ssl.ca.location": "/nowhere/ca.pem"})
    with KafkaLog(config) as log, pytest.raises(SettingsInvalid, match="No such file"):
        log.view(topic)
    with pytest.raises(SettingsInvalid, match="on each machine on which Spark's workers run"):
        read_all(config, topic)


@pytest.mark.parametrize("kind", ["mutual TLS, files", "mutual TLS, texts"])
@pytest.mark.parametrize("password", [None, f"{CANARY}-wrong"])
def test_encrypted_key_without_password_never_prompts(
    secured: SecuredBroker, topic: str, kind: str, password: str | None
) -> None:
    properties = {**KINDS[kind](secured), "ssl.key.password": password}
    config = KafkaConfig.from_dict({name: text for name, text in properties.items() if text is not None})
    for ask in (lambda: KafkaLog(config).view(topic), lambda: read_all(config, topic)):
        with pytest.raises(SettingsInvalid) as caught:
            ask()
        assert "ssl.key" in str(caught.value)
        assert CANARY not in str(caught.value)


def test_a_password_of_other_characters_survives_both_clients() -> None:
    assert {'"', ";", " "} <= set(PASSWORD)
