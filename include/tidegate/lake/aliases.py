"""What a stage's columns were called before: a file has the names of its time, and later files say how its
columns are called since.

So no file is written again for a new name. What a column is called in a file is told from what was declared
after it, and not before: a name that is free again may be another column's.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pyarrow as pa

from tidegate.core.reduce.collect import EVENTS
from tidegate.errors import LakeDamaged
from tidegate.lake.layout import Name
from tidegate.lake.manifest import DataFile

if TYPE_CHECKING:
    from tidegate.spec import Stage


@dataclass(frozen=True)
class Aliases:
    """What a stage's columns were called before: column -> its older names, the newest first.

    `within`: the list of structs whose fields they are, as the events of `reduce: collect`; None: the columns
    of the value itself.
    """

    names: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    within: str | None = None

    @classmethod
    def from_text(cls, text: str) -> Aliases:
        """As manifests have them, beside the files that were written with them."""
        document = json.loads(text)
        names = {name: tuple(older) for name, older in document["names"].items()}
        return cls(names, document["within"])

    @property
    def text(self) -> str | None:
        """The inverse of `from_text`; None where there are none."""
        if not self.names:
            return None
        return json.dumps(
            {"names": {name: [*older] for name, older in self.names.items()}, "within": self.within}
        )

    def updated(self, newer: Aliases) -> Aliases:
        """Together with those of a later edit, which counts where both name a column."""
        taken = {old for older in newer.names.values() for old in older}
        kept = {name: older for name, older in self.names.items() if name not in taken}
        names = {
            name: (*newer.names.get(name, ()), *(old for old in older if old not in taken))
            for name, older in kept.items()
        }
        return Aliases(dict(newer.names) | names, newer.within if newer.names else self.within)

    def stored_name(self, name: str, struct: pa.StructType) -> str | None:
        """Under which name a struct has a column; None: it does not have it. A column by that name which is
        called otherwise since is another one.
        """
        names = self.names if self.within is None else {}
        if any(name in older for other, older in names.items() if other != name):
            return None
        candidates = (name, *names.get(name, ()))
        return next((each for each in candidates if struct.get_field_index(each) >= 0), None)

    def inside(self, name: str) -> Aliases:
        """Those of the fields of a column's elements."""
        return Aliases(self.names) if name == self.within else NO_ALIASES


NO_ALIASES = Aliases()


def state_aliases(stage: Stage) -> Aliases:
    """What a stage says of its columns' older names; with `reduce: collect`, of those of its events."""
    return Aliases(stage.aliases, EVENTS if stage.reduce == "collect" else None)


def batch_of(file: DataFile) -> int:
    """The batch that wrote a state file, or after which it was folded. Raises LakeDamaged."""
    name = file.path.split("/")[-2]
    parsed = Name.parse(name)
    if parsed is None:
        raise LakeDamaged(
            f"No attempt and no snapshot has the name {name}, which a manifest's file has",
            "Use the version of tidegate that wrote the lake, or a newer one.",
        )
    return parsed.seq


def aliases_in(files: Sequence[DataFile], newest: Aliases = NO_ALIASES) -> Callable[[DataFile], Aliases]:
    """For each of a stage's files, what its columns are called since: by the files that came after it, and by
    `newest`, which no file may say yet. Raises LakeDamaged.
    """
    declared = {(batch_of(file), file.aliases) for file in files if file.aliases is not None}
    by_age = [(seq, Aliases.from_text(text)) for seq, text in sorted(declared)]

    def aliases_for(file: DataFile) -> Aliases:
        if not by_age:
            return newest
        written = batch_of(file)
        known = NO_ALIASES
        for seq, aliases in by_age:
            known = known.updated(aliases) if seq > written else known
        return known.updated(newest)

    return aliases_for


def declared_aliases(files: Sequence[DataFile]) -> Aliases:
    """All that the files declare: what one that takes their place has to. Raises LakeDamaged."""
    declared = {(batch_of(file), file.aliases) for file in files if file.aliases is not None}
    known = NO_ALIASES
    for _, text in sorted(declared):
        known = known.updated(Aliases.from_text(text))
    return known
