"""`tidegate recover`: show what can be done for a stream that cannot continue, and do it."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from tidegate.cli.options import as_json, by_whom, login_name, pipeline_argument
from tidegate.cli.output import say, show_object

if TYPE_CHECKING:
    from tidegate.ledger import Recovery
    from tidegate.recovery import UnknownCause
    from tidegate.recovery.remedy import Options, Proposal, Situation

    Finding = Proposal | UnknownCause

CHOICES = (
    *("accept-gap", "drop-plan", "lower-clock", "move", "restore-progress"),
    *("send-again", "give-up", "promote", "forget", "adopt-ledger"),
)
"""The names of the remedies; help does not wait for their import."""
TO_REPAIR = 4
"""The exit code if something must be repaired, and nothing was done."""


def _progress(_context: click.Context, _parameter: click.Parameter, given: tuple[str, ...]) -> dict[str, int]:
    """Sink -> batch, of texts such as `kafka:topic=7`."""
    progress = {}
    for text in given:
        sink, _, seq = text.rpartition("=")
        if not sink or not seq.isdecimal():
            raise click.BadParameter(f"{text} is not SINK=BATCH, as in kafka:availability=7.")
        progress[sink] = int(seq)
    return progress


@click.command()
@pipeline_argument
@click.option("--generation", type=int, help="Default: the one in the pipeline file, or in charge.")
@click.option("--choose", type=click.Choice(CHOICES), help="Show only what this remedy would do.")
@click.option("--from-batch", type=int, metavar="N", help="The batch from which on batches are sent again.")
@click.option(
    "--progress",
    multiple=True,
    metavar="SINK=BATCH",
    callback=_progress,
    help="The newest batch that a sink has as a whole, where the sink does not show it; repeatable.",
)
@click.option(
    "--sink", "sinks", multiple=True, metavar="SINK", help="Only this sink, whatever it fails of; repeatable."
)
@click.option(
    "--checkpoints",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="For move: lines of `partition,old offset,new offset`.",
)
@click.option(
    "--old-connection", metavar="NAME", help="For move: the connection of the cluster that was read before."
)
@click.option("--yes", is_flag=True, help="Do what --choose shows. The ledger records it.")
@by_whom
@as_json
def recover(
    pipeline: str,
    generation: int | None,
    choose: str | None,
    from_batch: int | None,
    progress: dict[str, int],
    sinks: tuple[str, ...],
    checkpoints: Path | None,
    old_connection: str | None,
    yes: bool,
    by: str | None,
    as_json: bool,
) -> None:
    """Repair PIPELINE where its batches cannot continue: name the cause, and what can be done about it.

    Without --choose it shows each cause that it finds, and each remedy with its effects. With --choose it
    shows what that remedy would do. Only with --yes does it act. Exit codes: 0 nothing needs a repair, or
    it is repaired; 1 a retry can help; 2 it cannot; 3 a run is at work; 4 something needs a repair, and
    nothing was done.
    """
    if yes and choose is None:
        raise click.UsageError("--yes goes with --choose.")
    from tidegate.app import App
    from tidegate.recovery import carry_out, find_proposals, stream_to_recover
    from tidegate.recovery.remedy import Options, Proposal, Situation

    options = Options(choose, from_batch, progress, sinks, by, checkpoints, old_connection)
    app = App.from_environment() if yes else App.for_reading()
    situation = Situation(app, stream_to_recover(app, pipeline, generation), options)
    findings = list(find_proposals(situation))
    done: list[str] = []
    for finding in findings if yes else ():
        if isinstance(finding, Proposal):
            done += carry_out(situation, finding, by or login_name())
    if as_json:
        show_object(_document(situation, findings, done))
    else:
        say("\n".join(done or _described(situation, findings)))
    if not yes:
        sys.exit(_exit_code(findings))


def _exit_code(findings: Sequence[Finding]) -> int:
    """Return the exit code if nothing was done: an error counts only if no remedy has found its cause."""
    from tidegate.recovery import UnknownCause

    errors = [finding.error.exit_code for finding in findings if isinstance(finding, UnknownCause)]
    return TO_REPAIR if len(errors) < len(findings) else max(errors, default=0)


def _document(situation: Situation, findings: Sequence[Finding], done: Sequence[str]) -> dict[str, Any]:
    stream = situation.stream
    return {
        "pipeline": stream.pipeline,
        "generation": stream.generation,
        "findings": [_finding_row(finding) for finding in findings],
        "causes": [cause.text for cause in situation.causes],
        "done": list(done),
        "used": [_use_row(use) for use in situation.uses],
    }


def _finding_row(finding: Finding) -> dict[str, Any]:
    from tidegate.recovery import UnknownCause

    if isinstance(finding, UnknownCause):
        return {"remedy": finding.remedy, "error": f"{type(finding.error).__name__}: {finding.error}"}
    return {"remedy": finding.remedy, "cause": finding.cause, "effects": list(finding.effects)}


def _use_row(use: Recovery) -> dict[str, Any]:
    names = ("remedy", "cause", "effects", "decided_by", "decided_at", "outcome")
    return {name: getattr(use, name) for name in names}


def _described(situation: Situation, findings: Sequence[Finding]) -> list[str]:
    """Return the lines for people."""
    from tidegate.recovery import UnknownCause

    stream, choice = situation.stream, situation.options.choice
    if not findings:
        nothing = f"{stream} needs no remedy" + (f" {choice}: its cause is not there." if choice else ".")
        return [nothing, *(f"Open: {cause.text}" for cause in situation.causes)]
    lines = []
    for finding in findings:
        if isinstance(finding, UnknownCause):
            error = finding.error
            lines += [
                f"{finding.remedy}: whether it can help is not known, for tidegate could not look: {error}",
                "",
            ]
            continue
        lines += [f"{finding.remedy}: {finding.cause}"]
        lines += [f"  - {effect}" for effect in finding.effects]
        command = (finding.stream or stream).recover_command(finding.remedy)
        lines += [f"  To do it: {command}{_arguments(situation.options)} --yes", ""]
    return lines[:-1]


def _arguments(options: Options) -> str:
    """Return the options that a proposal was made with: without them it would be another one."""
    named = [
        ("--from-batch", options.from_batch),
        *(("--progress", f"{sink}={seq}") for sink, seq in options.progress.items()),
        *(("--sink", sink) for sink in options.sinks),
        ("--checkpoints", options.checkpoints),
        ("--old-connection", options.old_connection),
        ("--by", options.by),
    ]
    given = (f" {name} {shlex.quote(str(value))}" for name, value in named if value is not None)
    return "".join(given)
