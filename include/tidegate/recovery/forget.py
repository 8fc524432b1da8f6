"""Remedy `forget`: remove a retired pipeline from the ledger and the lake."""

from __future__ import annotations

from contextlib import ExitStack
from uuid import uuid4

from tidegate.app import App, leased
from tidegate.app.owner import forget_promotions, is_marked_dropped, mark_dropped
from tidegate.batch import streams_without_file
from tidegate.batch.publish import lacking_batches
from tidegate.errors import Halted
from tidegate.generations.lifecycle import files_of, remove_files, require_not_looked_up
from tidegate.ledger import Stream
from tidegate.recovery.remedy import Proposal, Situation


class Forget:
    """Remove all generations of a pipeline that has no pipeline file. Its sinks keep what they have."""

    name = "forget"

    def propose(self, situation: Situation) -> Proposal | None:
        """Propose the remedy if no generation of the pipeline has a file.

        Raises Halted if the remedy is chosen and a generation has a file.
        """
        app, pipeline = situation.app, situation.stream.pipeline
        streams, left = _streams(app, pipeline), _left_streams(app, pipeline)
        if not streams and not left:
            return None
        with_file = [stream for stream in streams if stream not in streams_without_file(app)]
        if with_file:
            if not situation.is_chosen(self.name):
                return None
            raise Halted(
                f"{', '.join(map(str, with_file))} has a pipeline file, so {pipeline} is not retired",
                "Remove its pipeline files first.",
            )
        cause = f"No pipeline file has {pipeline}: it is retired."
        if left:
            names = ", ".join(map(str, left))
            cause += f" {names} has left the ledger already, and the lake still has files of it."
        effects = tuple(_effects(app, streams, left))
        return Proposal(self.name, cause, effects, lambda: _forget(app, pipeline))


def _streams(app: App, pipeline: str) -> list[Stream]:
    return [stream for stream in app.ledger.streams() if stream.pipeline == pipeline]


def _left_streams(app: App, pipeline: str) -> list[Stream]:
    """Return the generations that have left the ledger but not the lake, since a process was killed in
    between.
    """
    # Without a mark or with files, `_forget` was killed after the ledger's transaction.
    dropped = app.ledger.dropped_streams(pipeline)
    return [stream for stream in dropped if files_of(app, stream) or not is_marked_dropped(app, stream)]


def _effects(app: App, streams: list[Stream], left: list[Stream]) -> list[str]:
    effects = [
        f"{len(files_of(app, stream))} files of {stream} are deleted from the lake." for stream in left
    ]
    for stream in streams:
        files = files_of(app, stream)
        size = sum(file.bytes for file in files)
        batches = app.ledger.head(stream).seq
        effects.append(
            f"{stream} leaves the ledger, with {batches} batches, and {len(files)} files, {size} bytes, are "
            f"deleted from {app.lake(stream).base} in the lake {app.settings.lake}."
        )
        effects += [
            f"Batch {plan.seq} of {stream}, which is decided, is never published."
            for plan in lacking_batches(app.ledger, stream)
        ]
    return [*effects, "What was published stays in the sinks. The numbers of its generations stay used."]


def _forget(app: App, pipeline: str) -> tuple[str, ...]:
    """Remove the rows first, then the files: nobody reads files of a stream that the ledger lacks.

    A second call completes what a killed one has left.
    """
    streams, run_id = _streams(app, pipeline), f"recover__{uuid4().hex[:8]}"
    with ExitStack() as stack:
        # All leases at once: no generation plans a batch while the rows of the others go.
        leases = [stack.enter_context(leased(app, stream, run_id)).lease for stream in streams]
        for stream in streams:
            require_not_looked_up(app, stream)
        if streams:
            app.ledger.forget(pipeline, leases)
    forget_promotions(app, pipeline)
    forgotten = app.ledger.dropped_streams(pipeline)
    # Marks stay after the files: an older copy of the ledger must find them, and halt.
    for stream in forgotten:
        mark_dropped(app, stream)
    removed = sum(remove_files(app, stream) for stream in forgotten)
    return (f"{pipeline} has left the ledger, and {removed} files the lake.",)
