"""Older names of a stage's columns: a file has the names of its time, and later files declare how its columns
are called now.

A renamed column therefore rewrites no file. Only what was declared after a file applies to it: a name that is
free again may belong to another column.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pyarrow as pa

from tidegate.errors import LakeDamaged
from tidegate.kernel.reduce.collect import EVENTS
from tidegate.storage.layout import Name
from tidegate.storage.manifest import DataFile

if TYPE_CHECKING:
    from tidegate.spec import Stage


@dataclass(frozen=True)
class Aliases:
    """Older names of a stage's columns: column -> its older names, the newest first.

    `within` is the list of structs whose fields have these names, as the events of `reduce: collect`; None:
    they are columns of the value itself.

    Example: `Aliases({"amount": ("price", "cost")})` reads `cost` of an old file as `amount`.
    """

    names: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    within: str | None = None

    @classmethod
    def from_text(cls, text: str) -> Aliases:
        """Decode aliases as manifests have them, beside the files that were written with them. Raises
        ValueError and KeyError for any other text.
        """
        document = json.loads(text)
        names = {name: tuple(older) for name, older in document["names"].items()}
        return cls(names, document["within"])

    @property
    def text(self) -> str | None:
        """The aliases as a manifest has them, the inverse of `from_text`; None if there are none."""
        if not self.names:
            return None
        return json.dumps(
            {"names": {name: [*older] for name, older in self.names.items()}, "within": self.within}
        )

    def updated(self, newer: Aliases) -> Aliases:
        """Return these aliases together with those of a later edit. The later edit wins if both name a
        column.
        """
        # An older name that the later edit gives to another column no longer belongs to the column that had
        # it.
        taken = {old for older in newer.names.values() for old in older}
        remaining = {name: older for name, older in self.names.items() if name not in taken}
        names = {
            name: (*newer.names.get(name, ()), *(old for old in older if old not in taken))
            for name, older in remaining.items()
        }
        return Aliases(dict(newer.names) | names, newer.within if newer.names else self.within)

    def stored_name(self, name: str, struct: pa.StructType) -> str | None:
        """Return the name under which a struct has a column; None if it does not have it.

        A column of the struct with that very name is another column, if it has been renamed since.
        """
        names = self.names if self.within is None else {}
        if any(name in older for other, older in names.items() if other != name):
            return None
        candidates = (name, *names.get(name, ()))
        return next((candidate for candidate in candidates if struct.get_field_index(candidate) >= 0), None)

    def inside(self, name: str) -> Aliases:
        """Return the aliases of the fields of a column's elements; none unless the column is `within`."""
        return Aliases(self.names) if name == self.within else NO_ALIASES


NO_ALIASES = Aliases()


def state_aliases(stage: Stage) -> Aliases:
    """Return the older names that a stage of the pipeline file declares; with `reduce: collect`, names of its
    events' fields.
    """
    return Aliases(stage.aliases, EVENTS if stage.reduce.lists_events else None)


def batch_of(file: DataFile) -> int:
    """Return the batch that wrote a state file, or after which it was folded.

    Raises LakeDamaged if the file's folder has no name of an attempt or a snapshot.
    """
    name = file.path.split("/")[-2]
    parsed = Name.parse(name)
    if parsed is None:
        raise LakeDamaged(
            f"No attempt and no snapshot has the name {name}, which a manifest's file has",
            "Use the version of tidegate that wrote the lake, or a newer one.",
        )
    return parsed.seq


def aliases_in(files: Sequence[DataFile], newest: Aliases = NO_ALIASES) -> Callable[[DataFile], Aliases]:
    """Return a function that gives the aliases to read a file with: those that later files declare, and
    `newest`.

    `newest` are aliases of the pipeline file, which no stored file may declare yet. Raises LakeDamaged if the
    folder of a file has an unknown name.
    """
    # Most files of a batch declare the same; a set decodes each declaration once.
    declared = {(batch_of(file), file.aliases) for file in files if file.aliases is not None}
    by_age = [(seq, Aliases.from_text(text)) for seq, text in sorted(declared)]

    def aliases_for(file: DataFile) -> Aliases:
        # In most streams no column was ever renamed: then no name has to be parsed.
        if not by_age:
            return newest
        written = batch_of(file)
        aliases_since = NO_ALIASES
        for seq, aliases in by_age:
            aliases_since = aliases_since.updated(aliases) if seq > written else aliases_since
        return aliases_since.updated(newest)

    return aliases_for


def declared_aliases(files: Sequence[DataFile]) -> Aliases:
    """Return all aliases that the files declare together: a file that replaces them has to declare them, too.

    Raises LakeDamaged if the folder of a file has an unknown name.
    """
    declared = {(batch_of(file), file.aliases) for file in files if file.aliases is not None}
    merged = NO_ALIASES
    for _, text in sorted(declared):
        merged = merged.updated(Aliases.from_text(text))
    return merged
