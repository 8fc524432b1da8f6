"""Why a cluster does not answer: kafka-python only says that it does not, whatever the reason is.

It also loses what a broker says of a login by TLS before it hangs up, so librdkafka is asked for that.
"""

from __future__ import annotations

from typing import Any

from tidegate.broker.config import KafkaConfig
from tidegate.broker.security import uses_login, uses_tls
from tidegate.broker.tls import ssl_context, tls_problem
from tidegate.errors import BrokerUnavailable, SettingsInvalid, TidegateError

RIGHTS_PAGE = "docs/kafka.md"
_LOOK_SECONDS = 3.0


def login_refused(config: KafkaConfig, reason: str) -> SettingsInvalid:
    """The error of a user that a broker does not take."""
    return SettingsInvalid(
        f"Kafka at {config.servers} refuses this login: {reason}",
        f"Check the user and the mechanism in {config.variable}, and the user's rights: {RIGHTS_PAGE} lists "
        "those that tidegate needs.",
    )


def topic_right_missing(config: KafkaConfig, operation: str, *topics: str) -> SettingsInvalid:
    """Return the error of a user who may not do that with a topic, or with one of several."""
    what = f"the topic {' or '.join(topics)}"
    return right_missing(config, operation, what, " ".join(f"--topic {topic}" for topic in topics))


def right_missing(config: KafkaConfig, operation: str, what: str, options: str) -> SettingsInvalid:
    """Return the error of a user without a right. `options`: what kafka-acls.sh calls the resource."""
    user = config.properties.get("sasl.username", "NAME")
    return SettingsInvalid(
        f"Kafka at {config.servers} does not allow this user the operation {operation} on {what}",
        f"Allow it: kafka-acls.sh --add --allow-principal User:{user} --operation {operation} {options}. "
        f"{RIGHTS_PAGE} lists all rights that tidegate needs.",
    )


def unreachable(config: KafkaConfig, reason: str) -> TidegateError:
    """The error of a cluster that does not answer, as far as can be found out. Asks it again."""
    problem = _tls_problem(config)
    if problem is not None:
        return SettingsInvalid(
            f"Kafka at {config.servers} cannot be reached by TLS: {problem}",
            f"Check in {config.variable} that security.protocol is that of this listener, that ssl.ca is "
            "who signed the broker's certificate, and that the broker takes the client's.",
        )
    refusal = _refusal(config)
    if refusal is not None:
        return login_refused(config, refusal)
    return BrokerUnavailable(
        f"Kafka at {config.servers} does not answer ({reason})",
        f"Check that the broker runs, and that {config.variable} has its address, and the listener's "
        "security.protocol and sasl.mechanism; then run again, nothing is lost.",
    )


def _tls_problem(config: KafkaConfig) -> str | None:
    if not uses_tls(config.properties):
        return None
    return tls_problem(config.servers, ssl_context(config.properties, config.variable))


def _refusal(config: KafkaConfig) -> str | None:
    """By its name, without what the broker says, which may be anything."""
    if not uses_login(config.properties):
        return None
    import confluent_kafka as ck  # late: nothing else of who only asks needs it

    refusals = {ck.KafkaError._AUTHENTICATION, ck.KafkaError.SASL_AUTHENTICATION_FAILED}
    errors: list[Any] = []
    client = ck.Producer(config.for_librdkafka() | {"error_cb": errors.append, "log_level": 0})
    try:
        client.list_topics(timeout=_LOOK_SECONDS)
    except ck.KafkaException as error:
        errors.append(error.args[0])
    client.poll(0)
    return next((error.name() for error in errors if error.code() in refusals), None)
