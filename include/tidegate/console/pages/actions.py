"""The page of actions: the conf that triggers each in Airflow, or the command for it. The page itself writes
nothing.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request
from fastapi.responses import Response

from tidegate.console.host import host_of
from tidegate.console.parameters import Viewed
from tidegate.console.render import render
from tidegate.ledger import Charge, Stream

router = APIRouter()
_POSITION = r"^$|^[^/]+/\d+/\d+$"


@dataclass(frozen=True)
class Action:
    """An action on a pipeline.

    Args:
        title: what it is called.
        does: what happens, in a sentence.
        conf: the parameters of a run of the pipeline's DAG that does it.
        command: the same without Airflow.
        changes: whether it changes anything.
    """

    title: str
    does: str
    conf: Mapping[str, Any]
    command: str
    changes: bool = True

    @property
    def json(self) -> str:
        """The parameters as JSON, to be pasted into the form that triggers the DAG."""
        return json.dumps(self.conf, ensure_ascii=False)


@dataclass(frozen=True)
class Section:
    """Actions of one kind."""

    title: str
    actions: list[Action] = field(default_factory=list)


@router.get("/actions")
def actions(
    request: Request,
    dag_id: str,
    viewed: Viewed,
    record: Annotated[str, Query(max_length=400, pattern=_POSITION)] = "",
) -> Response:
    """The actions on a pipeline; with `record`, those on this record of quarantine."""
    app, entry, stream = viewed.app, viewed.entry, viewed.stream
    charge = app.ledger.charge(stream.pipeline)
    siblings = [other.generation for other in app.ledger.streams() if other.pipeline == stream.pipeline]
    return render(
        request,
        "actions.html",
        title=f"{dag_id}: actions",
        dag_id=dag_id,
        stream=stream,
        record=record,
        # Without a file there is no DAG, and a DAG acts on the generation of its file only.
        has_dag=(entry.pipeline is not None or bool(entry.problems)) and entry.streams[0] == stream,
        may_trigger=host_of(request).may_trigger(request, dag_id),
        sections=[
            _of_batches(entry.name),
            _of_quarantine(entry.name, record),
            _of_generations(stream, charge, siblings),
            _of_repairs(entry.name, stream),
        ],
    )


def _of_batches(name: str) -> Section:
    shown = shlex.quote(name)
    until = "2026-01-31T00:00:00Z"
    return Section(
        "Batches",
        [
            Action(
                "Dry run",
                "Shows what the next batch would read, and writes nothing.",
                {"dry_run": True},
                f"tidegate plan {shown}",
                changes=False,
            ),
            Action(
                "Run now",
                "Reads all records up to now, in a batch or more.",
                {},
                f"tidegate run {shown}",
            ),
            Action(
                "Run until",
                "Reads the records from before an instant, which is also the clock of the batch.",
                {"until": until},
                f"tidegate run {shown} --until {until}",
            ),
            Action(
                "Drain",
                "Reads nothing, and emits what the stages hold back.",
                {"drain": True},
                f"tidegate drain {shown}",
            ),
        ],
    )


def _of_quarantine(name: str, record: str) -> Section:
    shown = shlex.quote(name)
    chosen: dict[str, Any] = {"replay_record": record} if record else {"replay_reasons": ["malformed"]}
    option = f"--record {shlex.quote(record)}" if record else "--reason malformed"
    which = "this record" if record else "the open records that are in quarantine for a reason"
    return Section(
        f"Quarantine: {record}" if record else "Quarantine",
        [
            Action(
                "Replay",
                f"Reads {which} again, in a batch of their own. replay_set corrects their values.",
                {"replay": True, **chosen, "replay_because": ""},
                f"tidegate quarantine replay {shown} {option}",
            ),
            Action(
                "Discard",
                f"Notes that nobody will use {which}. Nothing is deleted.",
                {"action": "discard", **chosen, "replay_because": ""},
                f"tidegate quarantine discard {shown} {option}",
            ),
        ],
    )


def _of_generations(stream: Stream, charge: Charge, siblings: list[int]) -> Section:
    name = shlex.quote(stream.pipeline)
    section = Section("Generations")
    for generation in siblings if charge.generation is not None else ():
        if generation == charge.generation:
            continue
        section.actions.extend(
            [
                Action(
                    f"Compare generation {generation}",
                    "Shows what it would change for consumers, with examples.",
                    {"action": "diff", "action_generation": generation},
                    f"tidegate generation diff {name} {generation}",
                    changes=False,
                ),
                Action(
                    f"Promote generation {generation}",
                    "Puts it in charge: what it has withheld goes out, or with net only what differs.",
                    {"action": "promote", "action_generation": generation, "action_net": False},
                    f"tidegate generation promote {name} {generation}",
                ),
            ]
        )
    if charge.previous is not None:
        section.actions.append(
            Action(
                f"Roll back to generation {charge.previous}",
                "Puts the generation in charge again that was before; it goes on where it stopped.",
                {"action": "rollback", "action_net": False},
                f"tidegate generation rollback {name}",
            )
        )
    return section


def _of_repairs(name: str, stream: Stream) -> Section:
    shown = shlex.quote(name)
    return Section(
        "Checks and repairs",
        [
            Action(
                "Check",
                "Shows what would stop the next run, as doctor does.",
                {"action": "check"},
                f"tidegate doctor {shown}",
                changes=False,
            ),
            Action(
                "Compact",
                "Folds the files of the state, also if that is not due.",
                {"action": "compact"},
                f"tidegate compact {shown}",
            ),
            Action(
                "Show repairs",
                "Shows why the stream cannot continue, and each remedy with its effects.",
                {"action": "recover"},
                stream.recover_command(),
                changes=False,
            ),
            Action(
                "Repair",
                "Does what a remedy shows. Write the remedy, and look at what it shows first.",
                {"action": "recover", "action_remedy": "drop-plan", "action_confirm": True},
                f"{stream.recover_command('drop-plan')} --yes",
            ),
        ],
    )
