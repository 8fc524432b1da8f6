"""The DAG `<pipeline>.promote`, of a pipeline whose file has `approve_promotion: true`.

It shows what would change for consumers if another generation took charge. Then it waits for a person, by a
required action of Airflow, which occupies no worker. If the person approves, it promotes the generation.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from datetime import datetime, timezone
from hashlib import sha256
from typing import TYPE_CHECKING, Any

from airflow.providers.standard.operators.hitl import ApprovalOperator
from airflow.providers.standard.operators.python import PythonOperator
from airflow.sdk import DAG, Param
from airflow.sdk.exceptions import AirflowFailException

from tidegate_airflow.connections import connected, run_step
from tidegate_airflow.runs import ledger_run_id

if TYPE_CHECKING:
    from tidegate.generations import GenerationDifference

log = logging.getLogger(__name__)
_EXAMPLES = 10
_QUESTION = "question"
"""The XCom of `approve` with the digest of the text that the person has seen."""


class AskOperator(ApprovalOperator):  # type: ignore[misc]  # Airflow is not typed
    """An approval that stores the digest of the text that it shows, so that the answer counts only for that
    text.

    Airflow keeps the answer of a task that is not cleared, even if its upstream tasks have run again since.
    """

    def execute(self, context: Any) -> Any:
        # before Airflow asks: `execute` defers the task, and nothing after it runs in this try
        context["ti"].xcom_push(key=_QUESTION, value=_digest(self.body))
        return super().execute(context)


def promotion_dag(dag_id: str, pipeline: str, arguments: Mapping[str, Any]) -> DAG:
    """Return the DAG diff >> approve >> promote. `arguments` are those of `DAG`, from the pipeline's file.

    Args:
        dag_id: The id of the DAG.
        pipeline: The pipeline.
        arguments: The arguments of `DAG`; its `dagrun_timeout` is not used.
    """
    with DAG(
        dag_id=dag_id,
        schedule=None,
        catchup=False,
        # Two requests for one pipeline would compare with the same charge, and one answer would be refused.
        max_active_runs=1,
        params=_params(),
        doc_md=f"Promotes a generation of `{pipeline}` once a person has approved it.",
        **{name: value for name, value in arguments.items() if name != "dagrun_timeout"},  # people take time
    ) as dag:
        compared = PythonOperator(task_id="diff", python_callable=compare, op_args=[pipeline])
        approved = AskOperator(
            task_id="approve",
            subject=f"Promote generation {{{{ params.generation }}}} of {pipeline}?",
            body="{{ ti.xcom_pull(task_ids='diff')['summary'] }}",
            execution_timeout=None,
        )
        promoted = PythonOperator(task_id="promote", python_callable=promote, op_args=[pipeline])
        compared >> approved >> promoted
    return dag


def _params() -> dict[str, Param]:
    return {
        "generation": Param(
            type="integer",
            minimum=1,
            title="Generation",
            description="The generation that takes charge.",
        ),
        "net": Param(
            False,
            type="boolean",
            title="Net",
            description="Send only the differences from what consumers have, as one batch.",
        ),
    }


def compare(pipeline: str, **context: Any) -> dict[str, Any]:
    """Return the difference between two generations for the person who approves.

    The keys are `summary` (Markdown), `replaced` (the generation that is replaced), and `after` (the number
    of the newest promotion; the approved one must be the next). Examples quote records, so they are only in
    the log: more people can see a required action.

    Raises AirflowFailException and AirflowRescheduleException as `connections.run_step`.
    """
    params = context["params"]

    def work() -> dict[str, Any]:
        from tidegate.app import App
        from tidegate.generations import compare_generations, replaced_stream
        from tidegate.ledger import Stream

        app = App.from_environment()
        new = Stream(pipeline, params["generation"])
        # before the comparison: a promotion that comes in between makes the approval invalid
        after = len(app.ledger.charge(pipeline).promotions)
        old = replaced_stream(app, new, _run_id(context))
        comparison = compare_generations(app, old, new)
        behind = sum(app.ledger.head(new).unread_of(app.ledger.head(old)).values())
        for line in difference_lines(comparison, _EXAMPLES):
            log.info("%s", line)
        summary = _summary(comparison, behind, is_net=params["net"])
        log.info("%s", summary)
        return {"replaced": old.generation, "after": after, "summary": summary}

    return run_step(work)


def difference_lines(comparison: GenerationDifference, examples: int) -> Iterator[str]:
    """Yield the numbers and examples of each sink, for a log."""
    yield f"{comparison.sides}: what both have read"
    for sink in comparison.sinks:
        yield f"{sink.sink}: " + ", ".join(f"{number:,} {kind}" for kind, number in sink.counts.items())
        yield from (f"{sink.sink}: {example}" for example in sink.examples(examples))


def promote(pipeline: str, **context: Any) -> str:
    """Put the approved generation in charge, and publish what it has withheld.

    A second run is safe. A task that is cleared after a later promotion or rollback, or after `diff` has
    shown something else, raises AirflowFailException and changes nothing.
    """
    params, shown = context["params"], context["ti"].xcom_pull(task_ids="diff")
    approved_by = _require_answer(context["ti"], shown)

    def work() -> str:
        from tidegate.app import App
        from tidegate.generations import Approval, promote
        from tidegate.ledger import Stream

        app = App.from_environment()
        new = Stream(pipeline, params["generation"])
        for stream in (Stream(pipeline, shown["replaced"]), new):  # the replaced one publishes first
            app = connected(app, stream)
        # `promote` checks the number again in its compare-and-set, so a race with another promotion is safe.
        approval = Approval(approved_by, shown["after"])
        promotion = promote(app, new, _run_id(context), params["net"], approval).promotion
        return (
            f"{new} is in charge: its batches from {promotion.first_seq} on go out. "
            f"Approved by {promotion.approved_by}."
        )

    result = run_step(work)
    log.info("promote: %s", result)
    return result


def _require_answer(instance: Any, shown: Mapping[str, Any]) -> str:
    """Return the person who has approved what `diff` shows. Raise AirflowFailException if nobody has."""
    answer = instance.xcom_pull(task_ids="approve")
    # A task that was marked as successful by hand has no answer.
    if not answer or answer["chosen_options"] != [ApprovalOperator.APPROVE]:
        raise AirflowFailException(
            "Nobody has approved this promotion. Nothing was changed. Clear the task `approve`, and answer."
        )
    approved_by = str(answer["responded_by_user"]["name"])
    # Clearing `diff` and `promote` alone leaves the old answer, to a question that nobody has seen.
    if instance.xcom_pull(task_ids="approve", key=_QUESTION) != _digest(shown["summary"]):
        raise AirflowFailException(
            f"{approved_by} has approved what the task `diff` showed before it ran again. Nothing was "
            "changed. Clear the task `approve`, too, look at what changes now, and approve that."
        )
    return approved_by


def _digest(text: str) -> str:
    return sha256(text.encode()).hexdigest()


def _run_id(context: Mapping[str, Any]) -> str:
    run = context["dag_run"]
    return ledger_run_id(run.run_id, run.run_after)


def _summary(comparison: GenerationDifference, behind: int, *, is_net: bool) -> str:
    """Return a table of the sinks in Markdown, and what a promotion would do."""
    sent = "only what differs, as one batch" if is_net else "all that it has withheld"
    rows = [
        f"| {sink.sink} | {' | '.join(f'{number:,}' for number in sink.counts.values())} |"
        for sink in comparison.sinks
    ]
    lines = [
        f"What consumers would have, by key: {comparison.sides}, what both have read.",
        "",
        "| sink | same | changed | added | removed |",
        "|---|--:|--:|--:|--:|",
        *rows,
        "",
        f"{comparison.new} then sends {sent}. Examples are in the log of the task `diff`.",
        # The instant makes each comparison's digest different, even if the numbers are the same.
        f"Compared at {datetime.now(timezone.utc).isoformat()}.",
    ]
    if behind:
        lines.append(f"It has yet to read {behind:,} offsets that {comparison.old} has read.")
    return "\n".join(lines)
