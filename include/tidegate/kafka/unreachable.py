"""Find out why a cluster does not answer. kafka-python reports only that it does not.

It also loses a broker's answer to a login over TLS before the broker hangs up, so librdkafka tries the login.
"""

from __future__ import annotations

from typing import Any

from tidegate.errors import BrokerUnavailable, SettingsInvalid, TidegateError
from tidegate.kafka.config import KafkaConfig
from tidegate.kafka.security import uses_login, uses_tls
from tidegate.kafka.tls import ssl_context, tls_problem

RIGHTS_PAGE = "docs/kafka.md"
_LOOK_SECONDS = 3.0


def login_refused(config: KafkaConfig, reason: str) -> SettingsInvalid:
    """Return the error for a user whom a broker refuses."""
    return SettingsInvalid(
        f"Kafka at {config.servers} refuses this login: {reason}",
        f"Check the user and the mechanism in {config.variable}, and the user's rights: {RIGHTS_PAGE} lists "
        "those that tidegate needs.",
    )


def topic_right_missing(config: KafkaConfig, operation: str, *topics: str) -> SettingsInvalid:
    """Return the error for a user who lacks the right to an operation on a topic, or on one of several.

    Example: `topic_right_missing(config, "Write", "changes")`
    """
    what = f"the topic {' or '.join(topics)}"
    return right_missing(config, operation, what, " ".join(f"--topic {topic}" for topic in topics))


def right_missing(config: KafkaConfig, operation: str, what: str, options: str) -> SettingsInvalid:
    """Return the error for a user who lacks a right. `options` are those of kafka-acls.sh for the
    resource.
    """
    user = config.properties.get("sasl.username", "NAME")
    return SettingsInvalid(
        f"Kafka at {config.servers} does not allow this user the operation {operation} on {what}",
        f"Allow it: kafka-acls.sh --add --allow-principal User:{user} --operation {operation} {options}. "
        f"{RIGHTS_PAGE} lists all rights that tidegate needs.",
    )


def unreachable(config: KafkaConfig, reason: str) -> TidegateError:
    """Return the error for a cluster that does not answer, with the reason if it can be found out.

    It connects to the cluster again, which can take several seconds.
    """
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
    """Return the name of the error with which a broker refuses the login; None if it does not.

    The broker's own text is left out, since it can contain anything.
    """
    if not uses_login(config.properties):
        return None
    import confluent_kafka as ck  # late: code that only asks questions does not need it otherwise

    refusals = {ck.KafkaError._AUTHENTICATION, ck.KafkaError.SASL_AUTHENTICATION_FAILED}
    errors: list[Any] = []
    client = ck.Producer(config.for_librdkafka() | {"error_cb": errors.append, "log_level": 0})
    try:
        client.list_topics(timeout=_LOOK_SECONDS)
    except ck.KafkaException as error:
        errors.append(error.args[0])
    # The client calls `error_cb` only from within `poll` and the like.
    client.poll(0)
    return next((error.name() for error in errors if error.code() in refusals), None)
