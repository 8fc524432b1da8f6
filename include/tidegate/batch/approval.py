"""A promotion that a person has to approve, where a file of the pipeline asks for it: `approve_promotion`.

The person is shown what would change for consumers, so the approval holds for one decision: the one that
follows the newest promotion of then. A generation that `rollback` goes back to was in charge before: nobody
is asked.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from tidegate.app.root import App
from tidegate.errors import Halted, SettingsInvalid
from tidegate.ledger import Charge, Stream
from tidegate.spec import AirflowSettings, load_defaults, load_pipelines, stream_in_broken_file

_KEY = "approve_promotion"


@dataclass(frozen=True)
class Approval:
    """The approval of a promotion by a person.

    `after` is the number of the newest promotion when the person saw the difference; None if that is unknown.
    """

    approved_by: str
    after: int | None = None


def needs_approval(app: App, pipeline: str) -> bool:
    """Return whether `defaults.yaml`, or a file of any generation of the pipeline, requires approvals.

    A file with mistakes requires them if it contains the key at all. Raises PipelineInvalid for mistakes in
    `defaults.yaml`.
    """
    folder = app.settings.pipelines
    defaults = load_defaults(folder).airflow
    pipelines, errors = load_pipelines(folder)
    own = [pipeline_.airflow for pipeline_ in pipelines.values() if pipeline_.pipeline == pipeline]
    if any(settings.over(defaults).approve_promotion for settings in own or [AirflowSettings()]):
        return True
    files = {error.problems[0].file for error in errors}
    return any(_is_of(file, pipeline) and _KEY in Path(file).read_text(errors="replace") for file in files)


def require_approval(app: App, stream: Stream, charge: Charge, approval: Approval | None) -> None:
    """Raise SettingsInvalid if an approval is needed and missing.

    Raises Halted if a promotion or a rollback was decided since the approval was given.
    """
    if approval is None:
        if needs_approval(app, stream.pipeline):
            dag_id = load_defaults(app.settings.pipelines).promotion_dag_id(stream.pipeline)
            raise SettingsInvalid(
                f"Promotions of {stream.pipeline} have to be approved: a pipeline file has `{_KEY}: true`",
                f"Trigger the DAG {dag_id} with the generation {stream.generation}, and approve it there; or "
                "name who has approved it: `--approved-by NAME`.",
            )
    elif approval.after not in (None, len(charge.promotions)):
        raise Halted(
            f"{approval.approved_by} has approved that {stream} takes charge after promotion "
            f"{approval.after} of {stream.pipeline}, but promotion {len(charge.promotions)} has since put "
            f"generation {charge.generation} in charge",
            "Trigger the promotion again, and look at what changes now.",
        )


def _is_of(file: str, pipeline: str) -> bool:
    """Return whether a file with mistakes belongs to a pipeline."""
    stream = stream_in_broken_file(file)
    return stream is not None and stream[0] == pipeline


__all__ = ["Approval", "needs_approval", "require_approval"]
