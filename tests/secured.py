"""A real broker with TLS and logins: each kind of listener, and a login of each kind, as tidegate is told it.

`CANARY` is in everything that nobody is to see.
"""

from __future__ import annotations

import base64
import json
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TypeAlias

from confluent_kafka.admin import (
    AdminClient,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)

from tests.certificates import Authority
from tidegate_dev.broker import KafkaBroker
from tidegate_dev.processes import free_port

CANARY = "canary-7f3e"
PASSWORD = f'{CANARY} "pass;word"'
KEY_PASSWORD = f"{CANARY}-of-the-key"
TOKEN_CONFIG = f"user={CANARY}-client"
USER = "alice"
RESTRICTED = "bob"
"""A user who has the rights that a test gives it; all others may do everything."""
CALLBACK = "tests.secured:token"
_KAFKA = "org.apache.kafka.common.security"
_PROTOCOLS = {
    "PLAINTEXT": "PLAINTEXT",
    "CONTROLLER": "PLAINTEXT",
    "TLS": "SSL",
    "ELSEWHERE": "SSL",
    "MUTUAL": "SSL",
    "LOGIN": "SASL_PLAINTEXT",
    "BOTH": "SASL_SSL",
}
_LOGINS = ("LOGIN", "BOTH")
_CLAIM = "unsecuredLoginStringClaim_sub"

Properties: TypeAlias = dict[str, str]


class SecuredBroker(KafkaBroker):
    """Its listeners are those of `_PROTOCOLS`, ELSEWHERE at an address that its certificate is not for; the
    one without anything is for the tests' own clients."""

    def __init__(self, home: Path) -> None:
        self.folder = home / "certificates"
        self.folder.mkdir(parents=True)
        self.authority, self.stranger = Authority("tests"), Authority("stranger")
        self.client = self.authority.sign(USER)
        self.team = Authority("team", above=self.authority)
        self.member = self.team.sign(USER)
        self.ports = {name: free_port() for name in _PROTOCOLS}
        config = self._listeners() | self._tls() | _logins() | _rights()
        super().__init__(home, self.ports["PLAINTEXT"], config)

    def start(self) -> None:
        """Start the broker, and create its users."""
        super().start()
        admin = AdminClient({"bootstrap.servers": self.bootstrap_servers})
        users = [
            UserScramCredentialUpsertion(USER, ScramCredentialInfo(mechanism, 4096), PASSWORD.encode())
            for mechanism in (ScramMechanism.SCRAM_SHA_256, ScramMechanism.SCRAM_SHA_512)
        ]
        for user in users:
            for changed in admin.alter_user_scram_credentials([user]).values():
                changed.result()

    def reached(self, listener: str, **properties: str) -> Properties:
        """Return the settings of a client of a listener; dots are written as `__`."""
        address = {
            "bootstrap.servers": f"127.0.0.1:{self.ports[listener]}",
            "security.protocol": _PROTOCOLS[listener],
        }
        return address | {name.replace("__", "."): text for name, text in properties.items()}

    def file(self, name: str, text: str) -> str:
        """A file with a text, by its path."""
        path = self.folder / name
        path.write_text(text)
        return str(path)

    def _listeners(self) -> Mapping[str, str]:
        addresses = {
            name: f"{name}://127.0.0.{2 if name == 'ELSEWHERE' else 1}:{port}"
            for name, port in self.ports.items()
        }
        advertised = [address for name, address in addresses.items() if name != "CONTROLLER"]
        return {
            "listeners": ",".join(addresses.values()),
            "advertised.listeners": ",".join(advertised),
            "controller.quorum.voters": f"1@127.0.0.1:{self.ports['CONTROLLER']}",
            "listener.security.protocol.map": ",".join(
                f"{name}:{protocol}" for name, protocol in _PROTOCOLS.items()
            ),
        }

    def _tls(self) -> Mapping[str, str]:
        broker = self.authority.sign("broker")
        settings = {
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": self.file("broker.pem", broker.key + broker.text),
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": self.file("authority.pem", self.authority.own.text),
        }
        listeners = [name for name, protocol in _PROTOCOLS.items() if protocol.endswith("SSL")]
        named = {_listener_property(at, name): text for at in listeners for name, text in settings.items()}
        return named | {_listener_property("MUTUAL", "ssl.client.auth"): "required"}


def _logins() -> Mapping[str, str]:
    plain = json.dumps(PASSWORD)
    modules = {
        "PLAIN": f"{_KAFKA}.plain.PlainLoginModule required user_{USER}={plain} user_{RESTRICTED}={plain};",
        "SCRAM-SHA-256": f"{_KAFKA}.scram.ScramLoginModule required;",
        "SCRAM-SHA-512": f"{_KAFKA}.scram.ScramLoginModule required;",
        "OAUTHBEARER": f'{_KAFKA}.oauthbearer.OAuthBearerLoginModule required {_CLAIM}="broker";',
    }
    settings = {_listener_property(at, "sasl.enabled.mechanisms"): ",".join(modules) for at in _LOGINS}
    for mechanism, module in modules.items():
        # in a file of properties a backslash is one of two
        text = module.replace("\\", "\\\\")
        settings |= {_listener_property(at, f"{mechanism.lower()}.sasl.jaas.config"): text for at in _LOGINS}
    return settings


def _rights() -> Mapping[str, str]:
    users = ("ANONYMOUS", USER, f"CN={USER}")
    return {
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": ";".join(f"User:{name}" for name in users),
    }


def _listener_property(listener: str, name: str) -> str:
    return f"listener.name.{listener.lower()}.{name}"


def token(config: str) -> tuple[str, float]:
    """A token as Kafka's own unsecured validator takes it: a JWS that nobody has signed."""
    assert config == TOKEN_CONFIG
    now = time.time()
    claims = {"sub": USER, "iat": now - 1, "exp": now + 60, "secret": CANARY}
    parts = ({"alg": "none"}, claims)
    return ".".join([*(_encoded(part) for part in parts), ""]), now + 60


def _encoded(part: object) -> str:
    return base64.urlsafe_b64encode(json.dumps(part).encode()).rstrip(b"=").decode()


def failing_token(config: str) -> tuple[str, float]:
    """Fail with an error that would show its argument."""
    raise ValueError(f"nobody knows {config}")


def no_token(config: str) -> str:
    """Return a value that is not a token."""
    return config


def _password(listener: str, mechanism: str) -> Callable[[SecuredBroker], Properties]:
    def properties(broker: SecuredBroker) -> Properties:
        login = {"sasl__mechanism": mechanism, "sasl__username": USER, "sasl__password": PASSWORD}
        authority = {"ssl__ca__pem": broker.authority.own.text} if listener == "BOTH" else {}
        return broker.reached(listener, **login, **authority)

    return properties


def _jaas(broker: SecuredBroker) -> Properties:
    module = f"{_KAFKA}.scram.ScramLoginModule"
    jaas = f"{module} required username={json.dumps(USER)} password={json.dumps(PASSWORD)};"
    return broker.reached("LOGIN", sasl__mechanism="SCRAM-SHA-256", sasl__jaas__config=jaas)


def _tokens(broker: SecuredBroker) -> Properties:
    return broker.reached(
        "BOTH",
        ssl__ca__location=f"{broker.folder}/authority.pem",
        sasl__mechanism="OAUTHBEARER",
        sasl__oauthbearer__callback=CALLBACK,
        sasl__oauthbearer__config=TOKEN_CONFIG,
    )


def _tls_by_file(broker: SecuredBroker) -> Properties:
    return broker.reached("TLS", ssl__ca__location=f"{broker.folder}/authority.pem")


def _tls_by_text(broker: SecuredBroker) -> Properties:
    return broker.reached("TLS", ssl__truststore__certificates=broker.authority.own.text)


def _mutual_by_files(broker: SecuredBroker) -> Properties:
    return broker.reached(
        "MUTUAL",
        ssl__ca__location=f"{broker.folder}/authority.pem",
        ssl__certificate__location=broker.file("client.pem", broker.client.text),
        ssl__key__location=broker.file("client.key", broker.client.encrypted_key(KEY_PASSWORD)),
        ssl__key__password=KEY_PASSWORD,
    )


def _mutual_by_texts(broker: SecuredBroker) -> Properties:
    return broker.reached(
        "MUTUAL",
        ssl__ca__pem=broker.authority.own.text,
        ssl__certificate__pem=broker.client.text,
        ssl__key__pem=broker.client.encrypted_key(KEY_PASSWORD),
        ssl__key__password=KEY_PASSWORD,
    )


def _mutual_by_chain(broker: SecuredBroker) -> Properties:
    """The broker knows who is above the one that signed the client's certificate."""
    return broker.reached(
        "MUTUAL",
        ssl__ca__pem=broker.stranger.own.text + broker.authority.own.text,
        ssl__certificate__pem=broker.member.text + broker.team.own.text,
        ssl__key__pem=broker.member.key,
    )


def _mutual_by_stores(broker: SecuredBroker) -> Properties:
    """Return the settings as Java's clients have them."""
    return broker.reached(
        "MUTUAL",
        ssl__truststore__type="PEM",
        ssl__truststore__location=f"{broker.folder}/authority.pem",
        ssl__keystore__type="PEM",
        ssl__keystore__location=broker.file("store.pem", broker.client.key + broker.client.text),
    )


def with_all_secrets(broker: SecuredBroker) -> Properties:
    """A password, and a client's certificate beside it, which the broker does not ask for."""
    return broker.reached(
        "BOTH",
        ssl__ca__pem=broker.authority.own.text,
        ssl__certificate__pem=broker.client.text,
        ssl__key__pem=broker.client.encrypted_key(KEY_PASSWORD),
        ssl__key__password=KEY_PASSWORD,
        sasl__mechanism="PLAIN",
        sasl__username=USER,
        sasl__password=PASSWORD,
    )


KINDS: Mapping[str, Callable[[SecuredBroker], Properties]] = {
    "nothing": lambda broker: broker.reached("PLAINTEXT"),
    "TLS, a file": _tls_by_file,
    "TLS, a text": _tls_by_text,
    "mutual TLS, files": _mutual_by_files,
    "mutual TLS, texts": _mutual_by_texts,
    "mutual TLS, a chain": _mutual_by_chain,
    "mutual TLS, Java's stores": _mutual_by_stores,
    "PLAIN": _password("LOGIN", "PLAIN"),
    "PLAIN by TLS": _password("BOTH", "PLAIN"),
    "SCRAM-SHA-256, Java's login": _jaas,
    "SCRAM-SHA-256 by TLS": _password("BOTH", "SCRAM-SHA-256"),
    "SCRAM-SHA-512 by TLS": _password("BOTH", "SCRAM-SHA-512"),
    "OAUTHBEARER by TLS": _tokens,
}
"""Every way to reach the broker."""
