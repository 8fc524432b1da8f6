"""`source.topics`: the topics that a source reads, by their names, or by a pattern of names."""

from __future__ import annotations

import re
import warnings
from typing import Annotated

from pydantic import AfterValidator, BeforeValidator, Discriminator, Field, Tag
from pydantic import ValidationInfo as Info

from tidegate.model.mistakes import mistake
from tidegate.model.scope import Model, Topic, distinct, require_filled, scope_of

_ONLY_PYTHON = re.compile(r"\(\?(?:P|\(|>|[a-zA-Z]*[aLu])|(?:[*+?]|\{[\d,]+\})\+|\[[^\]]*(?:\[|&&)")
"""Parts that Java's patterns do not have, that mean something else there, or that only newer Pythons have."""
_FIX = "Write a regular expression for whole names, such as `orders-.*`."


def _check_pattern(pattern: str) -> str:
    """Return a pattern that means the same in Java, so that consumers can subscribe to the same topics."""
    # a class of characters is skipped as a whole only if no backslash escapes its end
    unescaped = re.sub(r"\\.", "", pattern)
    if (part := _ONLY_PYTHON.search(unescaped)) is not None:
        what = f"`{part[0]}` does not mean the same in each reader of patterns"
        raise mistake(what, "Use letters, `.`, `*`, `+`, `?`, `|`, classes such as `[a-z]`, and groups.")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            re.compile(pattern)
    except (re.error, OverflowError, RecursionError, Warning) as error:
        raise mistake(f"{pattern!r} is no regular expression: {error}", _FIX) from None
    return pattern


class TopicPattern(Model):
    """Selects topics by their whole names: when a batch is planned, the topics that exist then."""

    pattern: Annotated[str, AfterValidator(_check_pattern)] = Field(
        description="A regular expression for whole names of topics, without Kafka's internal ones."
    )

    def matches(self, topic: str) -> bool:
        """Return whether it selects a topic.

        Example: `TopicPattern(pattern="orders-.*").matches("orders-eu")` is True, of `old-orders-eu` False.
        """
        return re.fullmatch(self.pattern, topic) is not None


def reads(selection: tuple[str, ...] | TopicPattern, topic: str) -> bool:
    """Return whether a list of names, or a pattern, selects a topic."""
    return selection.matches(topic) if isinstance(selection, TopicPattern) else topic in selection


def _note_topics(selection: tuple[str, ...] | TopicPattern, info: Info) -> tuple[str, ...] | TopicPattern:
    source = scope_of(info).source
    source.selection, source.reads = selection, lambda topic: reads(selection, topic)
    return selection


Topics = Annotated[
    Annotated[
        Annotated[tuple[Topic, ...], BeforeValidator(require_filled), AfterValidator(distinct), Tag("names")]
        | Annotated[TopicPattern, Tag("pattern")],
        Discriminator(lambda written: "pattern" if isinstance(written, (dict, TopicPattern)) else "names"),
    ],
    AfterValidator(_note_topics),
]
