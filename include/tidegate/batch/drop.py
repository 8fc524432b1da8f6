"""A generation is given up for good: first the ledger forgets it, then its files go."""

from __future__ import annotations

from tidegate.app.lease import leased
from tidegate.app.owner import mark_dropped
from tidegate.app.root import App
from tidegate.batch.promotion import require_generation
from tidegate.errors import Halted
from tidegate.failpoints import failpoint
from tidegate.lake.store import Listed
from tidegate.ledger import Stream


def drop_generation(app: App, stream: Stream, run_id: str) -> int:
    """Forget a generation that is not in charge, and remove its files. Returns how many those were.

    What it has published stays where it is, also in a table of its own, and so do the marks of its folder.
    One that dies on the way is done again: what the ledger has forgotten, nobody reads. Raises LeaseHeld;
    Halted where it publishes; LedgerMismatch where its folder is another ledger's; SettingsInvalid for one
    that there never was; LakeUnavailable.
    """
    if not app.ledger.is_dropped(stream):
        _require_droppable(app, stream)
        with leased(app, stream, run_id) as lease:
            lease.drop()
    mark_dropped(app, stream)
    return remove_files(app, stream)


def _require_droppable(app: App, stream: Stream) -> None:
    require_generation(app, stream)
    require_not_looked_up(app, stream)


def require_not_looked_up(app: App, stream: Stream) -> None:
    """Raise Halted where a planned batch of another pipeline looks up the state of a stream."""
    pins = [pin for lookups in app.ledger.open_lookups() for pin in lookups.values()]
    if any(
        (pin.get("pipeline"), pin.get("generation")) == (stream.pipeline, stream.generation) for pin in pins
    ):
        raise Halted(
            f"A batch of another pipeline is planned that looks up the state of {stream}",
            "Let it go through, or forget it: tidegate recover PIPELINE --choose drop-plan.",
        )


def files_of(app: App, stream: Stream) -> list[Listed]:
    """Return the files of a stream, without marks and what is published. Raises LakeUnavailable."""
    lake = app.lake(stream)
    excluded = (f"{lake.base}/published/", lake.marks.folder)
    return [file for file in lake.store.listed(lake.base) if not file.path.startswith(excluded)]


def remove_files(app: App, stream: Stream) -> int:
    """Delete the files of a stream that the ledger has forgotten, and return how many those were."""
    lake, files = app.lake(stream), files_of(app, stream)
    for file in files:
        with failpoint("drop.delete"):
            lake.store.delete(file.path)
    return len(files)
