"""The command `recover`: show what can be done for a stream that cannot continue, and do it."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

from tidegate.app import App
from tidegate.cli.options import login_name
from tidegate.cli.show import out, show_object
from tidegate.ledger import Recovery
from tidegate.recovery import (
    Options,
    Proposal,
    Situation,
    UnknownCause,
    carry_out,
    find_proposals,
    stream_to_recover,
)

TO_REPAIR = 4
"""The exit code if something must be repaired, and nothing was done."""
Finding = Proposal | UnknownCause


def recover(
    pipeline: str, generation: int | None, options: Options, acts: bool, by: str | None, as_json: bool
) -> None:
    """Show the remedies for a stream of PIPELINE, or carry them out.

    Args:
        acts: Carry out the remedies; otherwise exit with TO_REPAIR if there is one.
        by: The user who decides; None for the login name.
    """
    app = App.from_environment() if acts else App.for_reading()
    situation = Situation(app, stream_to_recover(app, pipeline, generation), options)
    findings = list(find_proposals(situation))
    done: list[str] = []
    for finding in findings if acts else ():
        if isinstance(finding, Proposal):
            done += carry_out(situation, finding, by or login_name())
    if as_json:
        show_object(_document(situation, findings, done))
    else:
        _print_text("\n".join(done or _described(situation, findings)))
    if not acts:
        sys.exit(_exit_code(findings))


def _exit_code(findings: Sequence[Finding]) -> int:
    """Return the exit code if nothing was done: an error counts only if no remedy has found its cause."""
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
    if isinstance(finding, UnknownCause):
        return {"remedy": finding.remedy, "error": f"{type(finding.error).__name__}: {finding.error}"}
    return {"remedy": finding.remedy, "cause": finding.cause, "effects": list(finding.effects)}


def _use_row(use: Recovery) -> dict[str, Any]:
    names = ("remedy", "cause", "effects", "decided_by", "decided_at", "outcome")
    return {name: getattr(use, name) for name in names}


def _described(situation: Situation, findings: Sequence[Finding]) -> list[str]:
    """Return the lines for people."""
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
        lines += [f"  To do it: {command} --yes", ""]
    return lines[:-1]


def _print_text(text: str) -> None:
    out.print(text, markup=False, highlight=False, soft_wrap=True)
