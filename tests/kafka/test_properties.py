"""Client properties: one table for both clients; what one of them has not is refused with the reason."""

from __future__ import annotations

import logging
import pickle
import re
from pathlib import Path
from typing import Any

import pytest

from tests.certificates import Authority
from tidegate.errors import SettingsInvalid
from tidegate.kafka.config import KafkaConfig
from tidegate.kafka.properties import PROPERTIES, canonical, secrets

CANARY = "canary-41c9"
SERVERS = {"bootstrap.servers": "a:1,b:2"}
TLS = SERVERS | {"security.protocol": "SSL"}
LOGIN = SERVERS | {
    "security.protocol": "SASL_PLAINTEXT",
    "sasl.mechanism": "PLAIN",
    "sasl.username": "alice",
    "sasl.password": CANARY,
}
TOKENS = SERVERS | {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "OAUTHBEARER"}
PLAIN_MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule required"
JAAS = f'{PLAIN_MODULE} username="alice" password="{CANARY}";'
PAGE = Path(__file__).resolve().parents[2] / "docs" / "connect-to-kafka.md"


def test_login_is_translated_for_each_client() -> None:
    config = KafkaConfig.from_dict(LOGIN | {"request.timeout.ms": 7000, "client.id": "me"})
    assert config.for_python() == {
        "bootstrap_servers": ["a:1", "b:2"],
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": "PLAIN",
        "sasl_plain_username": "alice",
        "sasl_plain_password": CANARY,
        "request_timeout_ms": 7000,
        "client_id": "me",
    }
    assert config.for_librdkafka() == {**LOGIN, "socket.timeout.ms": "7000", "client.id": "me"}


def test_java_and_librdkafka_names_mean_the_same() -> None:
    names = {other: row.name for row in PROPERTIES.values() for other in row.aliases}
    assert len(names) == 5
    for other, name in names.items():
        assert canonical({other: "x"}, "V") == canonical({name: "x"}, "V") == {name: "x"}
    store = {"ssl.keystore.type": "PEM", "ssl.keystore.location": "/k.pem"}
    assert canonical(store, "V") == {"ssl.certificate.location": "/k.pem", "ssl.key.location": "/k.pem"}


@pytest.mark.parametrize(
    ("options", "password"),
    [
        ('username="alice" password="a b";', "a b"),
        (r'username="alice" password="a\"b\\c;d";', r'a"b\c;d'),
        ("password='x=\"y\"' username='alice';", 'x="y"'),
        ('  username = "alice"\n  password = "p" ;\n', "p"),
    ],
)
def test_the_login_of_java_is_taken_apart(options: str, password: str) -> None:
    properties = canonical({"sasl.jaas.config": f"{PLAIN_MODULE} {options}"}, "V")
    assert properties == {"sasl.username": "alice", "sasl.password": password}


@pytest.mark.parametrize(
    ("properties", "says"),
    [
        ({}, "has no bootstrap.servers"),
        (SERVERS | {"fetch.min.bytes": 1}, "fetch.min.bytes, which tidegate does not support.*Supported are"),
        (SERVERS | {"request.timeout.ms": "30s"}, "request.timeout.ms is no whole number"),
        (LOGIN | {"sasl.mechanisms": "PLAIN"}, "sasl.mechanism twice"),
        (LOGIN | {"sasl.jaas.config": JAAS}, "sasl.password twice, also as Java has it"),
        # what only Java has
        (TLS | {"ssl.truststore.location": "/t.jks"}, "Java's key stores.*openssl pkcs12"),
        (
            TLS | {"ssl.keystore.type": "PKCS12"},
            "keystore that is not PEM: neither kafka-python nor",
        ),
        (TLS | {"ssl.keystore.password": CANARY}, "Java's key stores"),
        (
            TOKENS | {"sasl.login.callback.handler.class": "a.B"},
            "names a Java class.*=module:function",
        ),
        (
            LOGIN | {"sasl.jaas.config": f"a.b.Krb5LoginModule required x='{CANARY}';"},
            "no login by PLAIN or SCRAM",
        ),
        (LOGIN | {"sasl.jaas.config": f"{PLAIN_MODULE} password='{CANARY}';"}, "no login by PLAIN or SCRAM"),
        # what only one of the clients has
        (TOKENS | {"sasl.oauthbearer.method": "oidc"}, "kafka-python does not fetch tokens by itself"),
        (TOKENS | {"sasl.oauthbearer.client.secret": CANARY}, "kafka-python does not fetch tokens"),
        (LOGIN | {"sasl.mechanism": "GSSAPI"}, "librdkafka, as its wheel is built, has no Kerberos"),
        (LOGIN | {"sasl.mechanism": "AWS_MSK_IAM"}, "librdkafka does not have it"),
        # what does not go together
        (SERVERS | {"security.protocol": "TLS"}, "security.protocol is not one of Kafka's.*SASL_SSL"),
        (
            SERVERS | {"ssl.ca.location": "/ca.pem"},
            "location is set, and the connection is not encrypted",
        ),
        (SERVERS | {"sasl.password": CANARY}, "sasl.password is set, and nobody logs in"),
        (TLS | {"sasl.mechanism": "PLAIN"}, "sasl.mechanism is set, and nobody logs in"),
        (SERVERS | {"security.protocol": "SASL_SSL"}, "a login needs sasl.mechanism"),
        (LOGIN | {"sasl.mechanism": "SCRAM"}, "sasl.mechanism is none that tidegate has.*SCRAM-SHA-256"),
        (
            {name: text for name, text in LOGIN.items() if name != "sasl.password"},
            "needs a user and a password",
        ),
        (TLS | {"ssl.ca.location": "/a", "ssl.ca.pem": "b"}, "ssl.ca is there as a file and as a text"),
        (TLS | {"ssl.certificate.location": "/c"}, "certificate is set without the key"),
        (TLS | {"ssl.key.pem": CANARY}, "key is set without the certificate"),
        (TLS | {"ssl.ca.pem": CANARY}, "ssl.ca.pem is no PEM text"),
        (TLS | {"ssl.endpoint.identification.algorithm": "dns"}, "Write https, or none"),
        # tokens
        (TOKENS, "needs a function that gives tokens"),
        (TOKENS | {"sasl.oauthbearer.callback": "shop.token"}, "as module:function"),
        (
            TOKENS | {"sasl.oauthbearer.callback": "shop:token"},
            "not be called.*TIDEGATE_PYTHON_MODULES=shop",
        ),
        (TOKENS | {"sasl.username": "alice"}, "sasl.username is not for OAUTHBEARER"),
        (LOGIN | {"sasl.oauthbearer.config": CANARY}, "sasl.oauthbearer.config is only for OAUTHBEARER"),
    ],
)
def test_unusable_property_is_refused_with_the_reason(properties: dict[str, Any], says: str) -> None:
    with pytest.raises(SettingsInvalid, match=re.compile(says, re.DOTALL)) as caught:
        KafkaConfig.from_dict(properties, "TIDEGATE_KAFKA_SHOP")
    assert str(caught.value).startswith("TIDEGATE_KAFKA_SHOP")
    assert caught.value.fix
    assert CANARY not in str(caught.value)


def test_invalid_json_is_not_repeated() -> None:
    with pytest.raises(SettingsInvalid, match="TIDEGATE_KAFKA_SHOP is neither") as caught:
        KafkaConfig.parse(f'{{"sasl.password": "{CANARY}"', "TIDEGATE_KAFKA_SHOP")
    assert caught.value.__cause__ is None
    assert CANARY not in str(caught.value)


def test_certificates_can_be_on_one_line() -> None:
    client = Authority("a").sign("client")
    texts = {"ssl.truststore.certificates": client.text, "ssl.keystore.certificate.chain": client.text}
    texts["ssl.keystore.key"] = client.key
    for joined in ("\n", " ", "\\n"):
        config = KafkaConfig.from_dict(
            TLS | {name: text.replace("\n", joined) for name, text in texts.items()}
        )
        assert config.properties["ssl.key.pem"] == client.key
        assert config.for_python()["ssl_context"].cert_store_stats()["x509"] == 1


def test_key_of_another_certificate_is_reported() -> None:
    authority = Authority("a")
    own, other = authority.sign("one"), authority.sign("other")
    config = KafkaConfig.from_dict(TLS | {"ssl.certificate.pem": own.text, "ssl.key.pem": other.key})
    with pytest.raises(SettingsInvalid, match="the key is not the certificate's"):
        config.for_python()


def test_nothing_that_shows_settings_shows_a_secret() -> None:
    key = Authority("a").sign("client")
    config = KafkaConfig.from_dict(
        LOGIN
        | {"security.protocol": "SASL_SSL", "ssl.key.password": CANARY}
        | {"ssl.certificate.pem": key.text, "ssl.key.pem": key.encrypted_key(CANARY)}
    )
    shown = [repr(config), repr(config.for_python()), str(dict(config.properties))]
    shown += [repr(config.for_librdkafka()), repr(pickle.loads(pickle.dumps(config)))]
    assert pickle.loads(pickle.dumps(config)) == config
    lines = [line for line in config.properties["ssl.key.pem"].splitlines() if len(line) > 20]
    assert [text for text in shown for secret in (CANARY, *lines[1:]) if secret in text] == []
    assert config.redacted(f"a {CANARY} b") == "a *** b"


def test_secrets_are_recognised_before_parsing() -> None:
    written = {
        "sasl.jaas.config": JAAS,
        "ssl.keystore.key": "key",
        "sasl.oauthbearer.client.secret": "secret",
        "ssl.truststore.password": "store",
        "client.id": "me",
        "sasl.password": "",
    }
    assert set(secrets(written)) == {written["sasl.jaas.config"], CANARY, "key", "secret", "store"}


def test_login_is_kept_out_of_client_logs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    loggers = [logging.getLogger(name) for name in ("kafka.net.connection", "kafka.protocol.parser", "py4j")]
    for logger in loggers:
        monkeypatch.setattr(logger, "level", logging.DEBUG)
        logger.manager._clear_cache()  # type: ignore[attr-defined]
    KafkaConfig.from_dict(SERVERS)
    assert all(logger.isEnabledFor(logging.DEBUG) for logger in loggers)
    KafkaConfig.from_dict(LOGIN)
    assert not any(logger.isEnabledFor(logging.DEBUG) for logger in loggers)


def test_the_page_has_every_property() -> None:
    page = PAGE.read_text()
    names = {name for row in PROPERTIES.values() for name in (row.name, *row.aliases)}
    assert [name for name in sorted(names) if f"`{name}`" not in page] == []
