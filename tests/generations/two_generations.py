"""A pipeline with two generations, one in charge and one beside it, whose batches were computed by hand."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from copy import copy
from pathlib import Path
from uuid import uuid4

from tests.batch.committed import Committed, Row
from tidegate import failpoints
from tidegate.app import App
from tidegate.generations import Approval, Promoted, open_generation, promote, rollback
from tidegate.ledger import Stream

SINKS = "  - {kind: sql, table: seconds}\n  - {kind: table, path: firsts, stage: first}"
OLD = [("visitors/1", 1, "a", 1), ("visitors/1", 1, "b", 1), ("visitors/1", 2, "a", 2)]
NEW = [
    ("visitors/2", 1, "a", 10),
    ("visitors/2", 1, "b", 10),
    ("visitors/2", 2, "a", 20),
    ("visitors/2", 2, "c", 20),
]
"""The rows that the generations have sent to the SQL sink: the old one as it begins, the new one once it is
filled."""


class Beside:
    """`old` is in charge, with two batches that are published; `new` has none yet. `Committed` says how
    batches are made. Both read `events`, up to the number of their last batch.
    """

    def __init__(self, folder: Path, sinks: str = SINKS, **connections: str) -> None:
        folder.mkdir(exist_ok=True)
        self.old = Committed(folder, sinks, f"sqlite:///{folder}/sink.db", **connections)
        self.decide(self.old, 1, [("a", 1), ("b", 1)])
        self.decide(self.old, 2, [("a", 2)])
        self.new = self._beside(2)
        open_generation(self.old.app, self.new.pipeline)

    def _beside(self, generation: int) -> Committed:
        new = copy(self.old)
        text = self.old.file.read_text()
        new.file = self.old.file.with_name(f"visitors_g{generation}.yaml")
        new.file.write_text(text.replace("source:", f"generation: {generation}\nsource:", 1))
        new.stream = Stream("visitors", generation)
        return new

    def copied(self, folder: Path) -> Beside:
        """Copy both generations to another folder, which is created."""
        shutil.copytree(self.old.folder, folder)
        other = copy(self)
        other.old, other.new = _moved(self.old, folder), _moved(self.new, folder)
        return other

    def decide(self, generation: Committed, seq: int, rows: Sequence[Row]) -> None:
        """A batch of both stages, from plan to publication, as far as it goes out."""
        generation.commit(seq, {"first": rows, "second": rows})
        generation.lease.release()
        generation.publish(seq)

    def fill(self, *more: Sequence[Row]) -> None:
        """The new generation reads what the old one has, and then more."""
        for seq, rows in enumerate([[("a", 10), ("b", 10)], [("a", 20), ("c", 20)], *more], 1):
            self.decide(self.new, seq, rows)

    def promote(
        self,
        generation: Committed,
        run_id: str | None = None,
        *,
        is_net: bool = False,
        approval: Approval | None = None,
    ) -> Promoted:
        """Promote a generation, by a run of its own unless `run_id` names one."""
        run_id = run_id or f"promote__{uuid4()}"
        return promote(self.old.app, generation.stream, run_id, is_net, approval)

    def rollback(self, *, is_net: bool = False) -> Promoted:
        return rollback(self.old.app, "visitors", f"rollback__{uuid4()}", is_net)

    def met_by_a_promotion(self, is_net: bool = False) -> list[str]:
        """The failpoints of a promotion of the new generation, which must be armed."""
        failpoints._hits.clear()
        self.promote(self.new, is_net=is_net)
        return list(failpoints._hits)

    def sent(self) -> list[tuple[str, int, str, int]]:
        """Return the rows of the SQL table in order: stream, batch, key and value."""
        statement = "SELECT stream, batch, key, m FROM seconds ORDER BY rowid"
        return [(stream, batch, key, value) for stream, batch, key, value in self.old.query(statement)]

    @property
    def in_charge(self) -> int | None:
        return self.old.app.ledger.charge("visitors").generation


def filled(folder: Path, sinks: str = SINKS, **connections: str) -> Beside:
    """Return two generations that have read as much: two keys differ, one is new, one is deleted, and one
    is the same.
    """
    beside = Beside(folder, sinks, **connections)
    beside.decide(beside.old, 3, [("gone", 1), ("same", 5)])
    beside.fill([("same", 5)])
    return beside


def _moved(generation: Committed, folder: Path) -> Committed:
    moved = copy(generation)
    moved.folder, moved.file = folder, folder / "pipelines" / generation.file.name
    environment = {
        name: value.replace(str(generation.folder), str(folder)) for name, value in moved.environment.items()
    }
    moved.environment, moved.sql = environment, environment["TIDEGATE_SQL"]
    moved.app = App.from_environment(environment)
    return moved
