"""Tokens for OAUTHBEARER: a Python function returns them, and both clients use the same ones.

The function is `module:function`, with the signature of confluent-kafka's `oauth_cb`: it takes the text of
the property `sasl.oauthbearer.config`, and returns (token, epoch seconds at which it expires) or (token,
expiry, principal, dict of extensions).
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from importlib import import_module
from threading import Lock
from typing import Any

from tidegate.errors import BrokerUnavailable, SettingsInvalid
from tidegate.kafka.properties import CALLBACK

_USED_UP = 0.8
"""The part of a token's life after which the next one is requested, as in librdkafka and Java."""


@dataclass(frozen=True)
class Token:
    """A token, the time at which it expires (epoch seconds), principal and extensions."""

    text: str = field(repr=False)
    expires: float
    principal: str = ""
    extensions: Mapping[str, str] = field(default_factory=dict, repr=False)


class TokenSource:
    """The tokens of a function. Each is used until most of its life is over."""

    def __init__(self, function: str, config: str) -> None:
        self._function = function
        self._config = config
        self._lock = Lock()
        self._token: Token | None = None
        self._renewed_after = 0.0

    def token(self) -> Token:
        """Return a token that is still valid for a while.

        Raises SettingsInvalid if the function does not exist or returns something else, BrokerUnavailable if
        it fails.
        """
        with self._lock:
            if self._token is None or time.time() > self._renewed_after:
                # Before the call: a slow function must not make the token look younger than it is.
                began = time.time()
                self._token = self._next()
                self._renewed_after = began + _USED_UP * (self._token.expires - began)
            return self._token

    def for_librdkafka(self, _: str) -> tuple[str, float, str, dict[str, str]]:
        """Return a token in the form of confluent-kafka's `oauth_cb`."""
        token = self.token()
        return token.text, token.expires, token.principal, dict(token.extensions)

    def for_python(self) -> Any:
        """Return a token provider for kafka-python."""
        from kafka.net.sasl.oauth import AbstractTokenProvider  # late: Spark's workers do without that client

        source = self

        class Provider(AbstractTokenProvider):  # type: ignore[misc]  # it is not typed
            def token(self) -> str:
                return source.token().text

            def extensions(self) -> dict[str, str]:
                return dict(source.token().extensions)

        return Provider()

    def _next(self) -> Token:
        function = self._resolved()
        try:
            answer = function(self._config)
        except Exception as error:
            # The error's text can contain the function's argument, which is secret: do not repeat it.
            raise BrokerUnavailable(
                f"{self._function}, which gives tokens for Kafka, failed: {type(error).__name__}",
                "Check who gives the tokens, and call the function by hand; then run again, nothing is lost.",
            ) from None
        return self._parsed(answer)

    def _resolved(self) -> Any:
        module, _, name = self._function.partition(":")
        try:
            return getattr(import_module(module), name)
        except (ImportError, AttributeError) as error:
            raise SettingsInvalid(
                f"There is no function {self._function}, which is to give tokens for Kafka: {error}",
                f"Correct {CALLBACK}. The module has to be where Python finds it, on Spark's workers, too.",
            ) from error

    def _parsed(self, answer: Any) -> Token:
        match answer:
            case (str(text), int() | float() as expires, *optional) if text and expires > time.time():
                principal, extensions, *_ = (*optional, None, None)
                return Token(text, float(expires), principal or "", extensions or {})
        raise SettingsInvalid(
            f"The function {self._function} gave no token that is still good",
            "It has to return (token, epoch seconds at which it expires), as `oauth_cb` of confluent-kafka.",
        )


@lru_cache
def token_source(function: str, config: str) -> TokenSource:
    """Return the token source of this process, so that all of its clients share a token."""
    return TokenSource(function, config)
