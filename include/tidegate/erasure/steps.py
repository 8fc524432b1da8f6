"""Erase keys from streams, step by step. Killed at any step, the next call goes on with the same erasure.

1. Publish what is decided, so that no outbox with a key waits.
2. Decide the batch of the erasure, and note the erasure, in one transaction. From here on no other batch of
   the stream is planned before the erasure is finished. This is done for all streams first.
3. Publish that batch: sinks delete the keys, each once.
4. Rewrite all files that have rows of the keys, also the outbox of that batch; then let readers find these
   files, in one transaction.
5. Let the Delta tables name them, and delete the former files, and all files that nobody reads.
6. Remove pages of Data Docs and texts of the ledger that show the keys.
7. Forget the keys themselves, write the ledger's file anew, and finish the certificate.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Collection, Sequence
from contextlib import ExitStack
from dataclasses import replace
from html import escape, unescape
from secrets import token_hex
from uuid import uuid4

from tidegate.app import App, leased
from tidegate.app.tables import catch_up_tables, replace_files
from tidegate.batch.publish import publish_decided
from tidegate.erasure.deletions import erasure_batch
from tidegate.erasure.files import read_manifests_of, rewrite
from tidegate.erasure.keys import ErasedKeys
from tidegate.erasure.plan import PlannedErasure, unfinished_in
from tidegate.errors import Halted
from tidegate.failpoints import failpoint
from tidegate.ledger import Erasure, LeasedLedger, Stream
from tidegate.ledger.facts import salted
from tidegate.ledger.planned import planned_pipelines
from tidegate.maintenance.cleaning import unread_in
from tidegate.quality.site import PageName, remove_pages
from tidegate.storage import DataFile
from tidegate.storage.compaction import remove

_SALT_BYTES = 16


def erase(
    app: App, planned: Sequence[PlannedErasure], by: str, progress: Callable[[str], None]
) -> list[Erasure]:
    """Erase keys from streams, or go on with erasures that are not finished; return their certificates.

    Args:
        app: the app.
        planned: what `plan_erasure` has shown.
        by: who decides it.
        progress: gets the name of each step.

    Raises LeaseHeld while a run is at work, Halted if a batch is planned and not decided, the errors of
    sinks, LakeDamaged, LakeUnavailable, LedgerUnavailable.
    """
    erasures = [erasure for erasure in planned if not erasure.is_done]
    with ExitStack() as stack, app.clusters:
        leases = [
            stack.enter_context(leased(app, erasure.stream, f"erase__{uuid4().hex[:8]}"))
            for erasure in erasures
        ]
        # The ledger has the keys of all streams before it forgets those of the first: so a command that is
        # killed goes on in all of them.
        for lease, erasure in zip(leases, erasures, strict=True):
            _begin(app, lease, erasure, by, progress)
        _require_all_streams(app, planned)
        for lease, erasure in zip(leases, erasures, strict=True):
            _finish(app, lease, erasure, progress)
    return [app.ledger.erasures(erasure.stream)[-1] for erasure in erasures]


def _require_all_streams(app: App, planned: Sequence[PlannedErasure]) -> None:
    """Raise Halted if a generation has got batches since the plan: it may have begun with the keys."""
    if not any(erasure.keys.texts for erasure in planned):
        return  # the keys are forgotten already
    pipeline, streams = planned[0].stream.pipeline, {erasure.stream for erasure in planned}
    for stream in app.ledger.streams():
        if stream.pipeline == pipeline and stream not in streams and app.ledger.head(stream).seq:
            raise Halted(
                f"{stream} has got its first batch meanwhile, and may have the keys",
                f"Let the erasure go on there, too: tidegate erase {pipeline} --yes.",
            )


def _begin(
    app: App, lease: LeasedLedger, planned: PlannedErasure, by: str, progress: Callable[[str], None]
) -> None:
    progress(f"publish what is decided of {lease.stream}")
    publish_decided(app, lease)
    if _unfinished(lease) is None:
        _decide(app, lease, planned.keys, by)


def _unfinished(lease: LeasedLedger) -> Erasure | None:
    return unfinished_in(lease.erasures(lease.stream), lease.head(lease.stream))


def _finish(app: App, lease: LeasedLedger, planned: PlannedErasure, progress: Callable[[str], None]) -> None:
    publish_decided(app, lease)
    erasure = _unfinished(lease)
    assert erasure is not None, "it has begun, under this lease"
    if erasure.request is not None:
        _remove_rows(app, lease, erasure, ErasedKeys.of_request(erasure.request), progress)
        lease.forget_keys(replace(erasure, sinks=planned.sinks, remarks=planned.remarks))
    progress("write the ledger's file anew")
    app.ledger.overwrite_removed_rows()
    lease.end_erasure(erasure.number)
    lease.release()


def _decide(app: App, lease: LeasedLedger, keys: ErasedKeys, by: str) -> None:
    stream, salt = lease.stream, token_hex(_SALT_BYTES)
    number = len(lease.erasures(stream)) + 1
    plan, attempt = erasure_batch(app, lease, number, keys, f"erase__{number}__{uuid4().hex[:8]}")
    digests = tuple(salted(salt, text) for text in keys.texts)
    erasure = Erasure(stream, number, plan.seq, salt, digests, (), keys.request, by)
    with failpoint("erase.begin"):
        lease.begin_erasure(erasure, (plan, attempt))


def _remove_rows(
    app: App, lease: LeasedLedger, erasure: Erasure, keys: ErasedKeys, progress: Callable[[str], None]
) -> None:
    stream, pipelines = lease.stream, planned_pipelines(app.ledger, lease.stream)
    catch_up_tables(app, stream, pipelines)
    if erasure.rewritten_at is None:
        progress(f"rewrite the files of {stream}")
        rewritten = rewrite(app, stream, erasure.number, keys, erasure.salt)
        with failpoint("erase.rewritten"):
            lease.point_to_rewritten(erasure.number, rewritten)
    erasure = lease.erasures(stream)[erasure.number - 1]
    with failpoint("erase.tables"):
        replace_files(app, stream, pipelines, erasure.number, _replaced(app, stream, erasure))
    progress("remove the former files")
    _remove_files(app, lease, erasure)
    remove_docs(app, stream, keys, erasure.batches)
    for dropped in app.ledger.dropped_streams(stream.pipeline):
        remove_docs(app, dropped, keys, ())  # a generation that is dropped leaves its pages
    lease.remove_samples(erasure.batches, redaction(keys))


def _replaced(app: App, stream: Stream, erasure: Erasure) -> dict[str, DataFile | None]:
    """Return the path of each former data file -> the file in its place; None if no row is left."""
    files = {file.path: file for read in read_manifests_of(app, stream) for file in read.files}
    return {
        row["before"]: files.get(row["after"]) for row in erasure.files if row["kind"] in ("state", "outbox")
    }


def _remove_files(app: App, lease: LeasedLedger, erasure: Erasure) -> None:
    """Delete the former files and manifests, and what nobody reads, however young: it may have the keys.

    No batch is at work, since the lease is ours; attempts that were never committed can never be, since it
    raised the epoch.
    """
    store, unread = app.lake(lease.stream).store, unread_in(app, lease.stream, math.inf)
    # A process that slept since may have listed files that a newer one has just written: it is fenced here.
    lease.renew()
    remove(store, unread)
    for row in erasure.files:
        with failpoint("erase.remove"):
            store.delete(row["before"])


ERASED_TEXT = "(erased)"
"""What a text of the ledger has in place of an erased key."""
_TEXTS_AT_ONCE = 200
"""The alternatives in one regular expression."""


def redaction(keys: ErasedKeys) -> Callable[[str], str]:
    """Return a function that replaces each whole occurrence of a key in a text.

    A key that is a part of a longer word or number stays: `7` is not in `17`.
    """
    patterns = _patterns(keys)

    def redacted(text: str) -> str:
        for pattern in patterns:
            text = pattern.sub(ERASED_TEXT, text)
        return text

    return redacted


def _patterns(keys: ErasedKeys) -> list[re.Pattern[str]]:
    forms = sorted({form for text in keys.texts for form in _forms(text)}, key=len, reverse=True)
    parts = [forms[at : at + _TEXTS_AT_ONCE] for at in range(0, len(forms), _TEXTS_AT_ONCE)]
    return [re.compile(rf"(?<!\w)(?:{'|'.join(map(re.escape, part))})(?!\w)") for part in parts]


def _forms(text: str) -> set[str]:
    """Return a key as texts quote it: as it is, as a JSON text, as Python's repr, and as HTML."""
    quoted = {text, json.dumps(text)[1:-1], json.dumps(text, ensure_ascii=False)[1:-1], repr(text)[1:-1]}
    return quoted | {escape(form) for form in quoted}


def remove_docs(app: App, stream: Stream, keys: ErasedKeys, batches: Collection[int]) -> int:
    """Remove the pages of Data Docs of batches that had rows of the keys, and others that show a key.

    Return the number of pages. Raises LakeUnavailable.
    """
    patterns, affected = _patterns(keys), frozenset(batches)

    def is_removed(page: PageName, text: str) -> bool:
        return page.seq in affected or any(
            pattern.search(shown) for shown in (text, unescape(text)) for pattern in patterns
        )

    with failpoint("erase.docs"):
        return remove_pages(app.settings.data_docs, stream.pipeline, stream.generation, is_removed)
