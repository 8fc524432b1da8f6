"""`sources`: several sources side by side, each with topics and a format of its own; `source` is one of them
that is called `source`.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

from pydantic import AfterValidator, BeforeValidator, Discriminator, Field, Tag
from pydantic import ValidationInfo as Info

from tidegate.expressions.types import ColumnTypes, Type
from tidegate.model import names
from tidegate.model.connection import Connection
from tidegate.model.mistakes import listed, mistake
from tidegate.model.scope import Model, Scope, SourceScope, Topic, distinct, require_filled, scope_of

if TYPE_CHECKING:
    from tidegate.model.columns import Column
    from tidegate.model.schemas import Registry
    from tidegate.model.source import Source

Rule = TypeVar("Rule")
_ALONE = "Read its topics in a pipeline of their own, and its output here."


# while the file is read


def note_names(written: Any, info: Info) -> Any:
    """Note the names of the sources, before they are read one after the other."""
    if isinstance(written, dict):
        scope_of(info).named = tuple(map(str, written))
    return written


def open_source(scope: Scope) -> None:
    """Add the next source to the scope."""
    number = len(scope.sources)
    name = scope.named[number] if number < len(scope.named) else names.SOURCE
    scope.sources[name] = SourceScope()


def check_name(name: str) -> str:
    """Return the name of an entry of `sources` if it is valid. Raises a mistake otherwise."""
    if name == names.SOURCE:
        what = "`source` is no name for one of several sources"
        raise mistake(what, "Name it after its records, such as `orders`.")
    return names.check_name(name)


def check_connection(connection: str | None, info: Info) -> str | None:
    """Note the connection. Raises a mistake if a source above has another one."""
    scope = scope_of(info)
    scope.source.connection = connection
    for name, source in _earlier(scope).items():
        if source.connection != connection:
            fix = f"Use that of `{name}`, or mirror the topics into its cluster."
            raise mistake("all sources of a pipeline are in one Kafka cluster", fix)
    return connection


def check_topics(selection: tuple[str, ...] | TopicPattern, info: Info) -> tuple[str, ...] | TopicPattern:
    """Raise a mistake for a topic that a source above reads, too.

    Whether two patterns select the same topic is only known when a batch is planned.
    """
    for name, source in _earlier(scope_of(info)).items():
        shared = _shared(selection, source)
        if shared:
            fix = "Leave it out of one of them; several stages can read one source (`from`)."
            raise mistake(f"`{shared}` belongs to the source `{name}` already", fix)
    return selection


def _earlier(scope: Scope) -> dict[str, SourceScope]:
    """Return the sources above the present one; none above `source`, which is alone."""
    present = next(reversed(scope.sources), names.SOURCE)
    return {} if present == names.SOURCE else dict(list(scope.sources.items())[:-1])


def _shared(selection: tuple[str, ...] | TopicPattern, earlier: SourceScope) -> str | None:
    """Return a topic, or a pattern, that a selection and an earlier source share; None if there is none."""
    if isinstance(selection, tuple):
        return next((topic for topic in selection if earlier.reads(topic)), None)
    if isinstance(earlier.selection, TopicPattern):
        return selection.pattern if selection.pattern == earlier.selection.pattern else None
    return next((topic for topic in earlier.selection if selection.matches(topic)), None)


def only_alone(rule: Rule, what: str, info: Info) -> Rule:
    """Return a rule that drops records before the stages. Raises a mistake beside another source."""
    if len(scope_of(info).named) > 1:
        raise mistake(f"{what} does not go with several sources", _ALONE)
    return rule


def union_columns(sources: Mapping[str, SourceScope]) -> ColumnTypes | None:
    """Return the columns of the union of sources; None if those of a source are unknown.

    Raises a mistake for a column that has two types, or two spellings.
    """
    union: dict[str, Type | None] = {}
    owners: dict[str, tuple[str, str]] = {}
    for source, scope in sources.items():
        if scope.columns is None:
            return None
        for name, type_ in scope.columns.items():
            spelling, owner = owners.setdefault(name.lower(), (name, source))
            if spelling != name and owner != source:
                fix = "Write it in the same way in both."
                raise mistake(f"`{owner}` has the column `{spelling}`, and `{source}` has `{name}`", fix)
            other = union.setdefault(name, type_)
            if other is not None and type_ is not None and other.text != type_.text:
                fix = "Declare it with the same type in both, rename one, or let two stages read them."
                what = f"`{name}` is {other.text} in `{owner}`, and {type_.text} in `{source}`"
                raise mistake(f"the union has one type for each column, but {what}", fix)
    return union


def union_key(sources: Mapping[str, SourceScope]) -> tuple[str, ...] | None:
    """Return the key of the union of sources; None if that of a source is unknown.

    Raises a mistake if two of them have different keys, or recognize repetitions differently.
    """
    first, *later = sources.items()
    for name, scope in later:
        if scope.key is None or first[1].key is None:
            return None
        if scope.key != first[1].key:
            keys = f"{_key_text(first[1].key)} in `{first[0]}`, and {_key_text(scope.key)} in `{name}`"
            fix = "Give both `key` the same columns, or let two stages read them."
            raise mistake(f"the union has one key, but it is {keys}", fix)
        if None not in (first[1].repeats, scope.repeats) and scope.repeats != first[1].repeats:
            fix = f"Use one `deduplicate` in `{first[0]}` and `{name}`."
            raise mistake("the union recognizes repetitions in one way", fix)
    return first[1].key


def _key_text(key: tuple[str, ...]) -> str:
    return listed(key) if key else "the record's own key"


# as it is used


def union_of(sources: Iterable[Source]) -> tuple[Column, ...]:
    """Return the columns of the union of sources: those of the first, then those that others have beside."""
    columns = (column for source in sources for column in source.row_columns)
    by_name: dict[str, Column] = {}
    for column in columns:
        by_name.setdefault(column.name, column)
    return tuple(by_name.values())


class Sources(Mapping[str, "Source"]):
    """The sources of a pipeline by name, in the order of the file.

    Example: `pipeline.sources.of_topic("orders").format`
    """

    def __init__(self, by_name: Mapping[str, Source]) -> None:
        self._by_name = dict(by_name)

    def __getitem__(self, name: str) -> Source:
        return self._by_name[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._by_name)

    def __len__(self) -> int:
        return len(self._by_name)

    @property
    def connection(self) -> str | None:
        """The name of the Kafka cluster of all sources; None is the one without a name."""
        return self._first.connection

    @property
    def cluster(self) -> Connection:
        """The connection of the Kafka cluster."""
        return self._first.cluster

    @property
    def _first(self) -> Source:
        return next(iter(self.values()))

    @property
    def topics(self) -> tuple[str, ...]:
        """The names of all topics. Those of a pattern are known after a batch was planned."""
        return tuple(chain.from_iterable(source.topics for source in self.values()))

    @property
    def topic_labels(self) -> tuple[str, ...]:
        """The names of all topics; before a batch was planned, the patterns in the place of theirs."""
        return tuple(chain.from_iterable(source.topic_labels for source in self.values()))

    @property
    def registries(self) -> tuple[Registry, ...]:
        """The schema registries of all sources."""
        return tuple(chain.from_iterable(source.registries for source in self.values()))

    @property
    def explodes(self) -> bool:
        """Whether a record of some source becomes several."""
        return any(source.explode is not None for source in self.values())

    def reads(self, topic: str) -> bool:
        """Return whether a source reads a topic."""
        return any(source.reads(topic) for source in self.values())

    def name_of(self, topic: str) -> str:
        """Return the name of the source that reads a topic; the only one reads all topics of its batches."""
        names_ = [name for name, source in self.items() if len(self) == 1 or source.reads(topic)]
        return names_[0]

    def of_topic(self, topic: str) -> Source:
        """Return the source that reads a topic."""
        return self[self.name_of(topic)]

    def with_topics(self, topics: Sequence[str]) -> Sources:
        """Return the sources with the topics that their patterns have selected."""
        return Sources(
            {
                name: source.with_topics(tuple(topic for topic in topics if source.reads(topic)))
                for name, source in self.items()
            }
        )


_ONLY_PYTHON = re.compile(r"\(\?(?:P|\(|>|[a-zA-Z]*[aLu])|(?:[*+?]|\{[\d,]+\})\+|\[[^\]]*(?:\[|&&)")
"""Parts that Java's patterns do not have, that mean something else there, or that only newer Pythons have."""
_FIX = "Write a regular expression for whole names, such as `orders-.*`."


def _check_pattern(pattern: str) -> str:
    """Return a pattern that means the same in Java, so that consumers can subscribe to the same topics."""
    if not pattern:
        raise mistake("an empty pattern matches no topic", _FIX)
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
