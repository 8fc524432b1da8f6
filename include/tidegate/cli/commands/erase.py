"""`tidegate erase`: remove keys everywhere, and list the certificates of what was removed."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from tidegate.cli.options import as_json, by_whom, login_name, pipeline_argument, pipeline_named, text_of
from tidegate.cli.output import iso_instant, say, show, show_object, steps_shown
from tidegate.numerals import counted

if TYPE_CHECKING:
    from tidegate.app import App
    from tidegate.erasure import PlannedErasure
    from tidegate.ledger import Erasure

NOT_DONE = 4
"""The exit code if there is something to erase, and nothing was done."""


@click.command()
@pipeline_argument
@click.option(
    "--key", "keys", multiple=True, metavar="KEY", help="A key, as `tidegate state` writes it; repeatable."
)
@click.option(
    "--keys-from",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    metavar="FILE",
    help="A file with a key in each line.",
)
@click.option(
    "--keys-topic", metavar="TOPIC", help="A topic whose records have the keys; their values are ignored."
)
@click.option("--stage", help="The stage that the keys are of; default: the first.")
@click.option("--yes", is_flag=True, help="Do what is shown. The ledger records it.")
@by_whom
@click.option("--certificates", is_flag=True, help="List what was erased before, and do nothing.")
@as_json
def erase(
    pipeline: str,
    keys: tuple[str, ...],
    keys_from: Path | None,
    keys_topic: str | None,
    stage: str | None,
    yes: bool,
    by: str | None,
    certificates: bool,
    as_json: bool,
) -> None:
    """Erase keys of PIPELINE: from state, outboxes, quarantine, Data Docs and tables, then from its sinks.

    Without --yes it shows what would be done, and what cannot be. An erasure that was killed goes on with the
    same command, also without keys; until then no batch of its stream is planned. Exit codes: 0 done; 1 a
    retry can help; 2 it cannot; 3 a run is at work; 4 something would be erased, and nothing was done.
    """
    from tidegate.app import App
    from tidegate.erasure import plan_erasure, requested_keys

    app = App.from_environment() if yes else App.for_reading()
    pipeline = pipeline_named(app, pipeline)
    if certificates:
        _list_certificates(app, pipeline, as_json)
        return
    texts = [*keys, *_lines(keys_from), *_keys_in_topic(app, pipeline, keys_topic)]
    requested = requested_keys(app, pipeline, stage, texts) if texts or stage is not None else None
    # An erasure that is not finished goes first, with its own keys.
    planned = plan_erasure(app, pipeline, None) or plan_erasure(app, pipeline, requested)
    done: list[Erasure] = []
    if yes:
        done = _carry_out(app, planned, by or login_name(), as_json)
        if requested is not None and any(erasure.unfinished for erasure in planned):
            done += _carry_out(app, plan_erasure(app, pipeline, requested), by or login_name(), as_json)
    _print(planned, done, as_json)
    if not yes and any(not erasure.is_done for erasure in planned):
        sys.exit(NOT_DONE)


def _carry_out(app: App, planned: Sequence[PlannedErasure], by: str, quiet: bool) -> list[Erasure]:
    from tidegate.erasure import erase as erase_keys

    with steps_shown(quiet) as progress:
        return erase_keys(app, planned, by, progress)


def _lines(file: Path | None) -> list[str]:
    if file is None:
        return []
    # Not `splitlines`, which also splits at characters that keys may contain, such as U+2028.
    lines = text_of(file, "Correct --keys-from.").split("\n")
    return [line.removesuffix("\r") for line in lines if line.strip()]


def _keys_in_topic(app: App, pipeline: str, topic: str | None) -> list[str]:
    if topic is None:
        return []
    from tidegate.erasure.plan import keys_in_topic

    return keys_in_topic(app, pipeline, topic)


def _print(planned: Sequence[PlannedErasure], done: Sequence[Erasure], as_json: bool) -> None:
    if as_json:
        show_object({"plan": list(map(_plan_object, planned)), "done": list(map(_certificate, done))})
        return
    for erasure in () if done else planned:
        say("\n".join(_described(erasure)))
    for certificate in done:
        rows = ", ".join(f"{number} of {kind}" for kind, number in certificate.rows.items()) or "none"
        say(
            f"{certificate.stream}: erased in batch {certificate.seq}, certificate {certificate.number}; "
            f"rows: {rows}; {counted(len(certificate.files), 'file')} rewritten."
        )
    if not planned:
        say("No erasure is to go on. Name a key: --key KEY, or --keys-from FILE.")


def _described(erasure: PlannedErasure) -> list[str]:
    stream, survey = erasure.stream, erasure.survey
    if erasure.is_done:
        assert erasure.certificate is not None
        return [f"{stream}: erased already, by certificate {erasure.certificate.number}."]
    lines = [f"{stream}: {counted(len(erasure.keys.texts), 'key')}"]
    if erasure.unfinished is not None:
        lines = [f"{stream}: erasure {erasure.unfinished.number} is not finished, and goes on"]
    for (kind, stage), rows in sorted(survey.rows.items()):
        if rows:
            files = survey.files[kind, stage]
            lines.append(
                f"  - {kind} {stage}".rstrip()
                + f": {counted(rows, 'row')}, {counted(files, 'file')} to rewrite"
            )
    lines += [f"  - {sentence}" for sentence in erasure.sinks.values()]
    lines += [f"  not erased: {remark}" for remark in erasure.remarks]
    return [
        *lines,
        f"  To do it: the same command with --yes, or tidegate erase {stream.pipeline} --yes to go on",
    ]


def _plan_object(erasure: PlannedErasure) -> dict[str, Any]:
    places = sorted(erasure.survey.rows.items())
    return {
        "pipeline": erasure.stream.pipeline,
        "generation": erasure.stream.generation,
        "done": erasure.is_done,
        "unfinished": None if erasure.unfinished is None else erasure.unfinished.number,
        "rows": [
            {"kind": kind, "stage": stage, "rows": rows, "files": erasure.survey.files[kind, stage]}
            for (kind, stage), rows in places
        ],
        "sinks": erasure.sinks,
        "not_erased": list(erasure.remarks),
    }


def _list_certificates(app: App, pipeline: str, as_json: bool) -> None:
    streams = [stream for stream in app.ledger.streams() if stream.pipeline == pipeline]
    streams += app.ledger.dropped_streams(pipeline)
    erasures = [erasure for stream in streams for erasure in app.ledger.erasures(stream)]
    if as_json:
        show(list(map(_certificate, erasures)), True)
        return
    rows = [
        {
            "stream": str(erasure.stream),
            "number": erasure.number,
            "batch": erasure.seq,
            "keys": len(erasure.keys),
            "by": erasure.decided_by,
            "decided": iso_instant(round(erasure.decided_at * 1000)),
            "finished": "no"
            if erasure.finished_at is None
            else iso_instant(round(erasure.finished_at * 1000)),
            "rows": sum(erasure.rows.values()),
            "files": len(erasure.files),
        }
        for erasure in erasures
    ]
    show(rows, False, empty=f"Nothing of {pipeline} was erased.")


def _certificate(erasure: Erasure) -> dict[str, Any]:
    """Return a certificate as an object: all but the keys of an erasure that is not finished."""
    names = ("number", "salt", "keys", "entries", "decided_by", "decided_at", "rewritten_at", "finished_at")
    more = ("rows", "files", "batches", "sinks", "remarks")
    stream = {
        "pipeline": erasure.stream.pipeline,
        "generation": erasure.stream.generation,
        "batch": erasure.seq,
    }
    return stream | {name: getattr(erasure, name) for name in (*names, *more)}
