"""One DAG per pipeline file. At parse time only the YAML files are read.

The maintenance DAG compacts state and removes unused files. It runs beside the pipelines' DAGs.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import datetime, timedelta, timezone
from functools import partial
from pathlib import Path
from typing import Any

from airflow.sdk import (
    DAG,
    AssetAll,
    AssetAny,
    AssetOrTimeSchedule,
    CronDataIntervalTimetable,
    get_parsing_context,
    task,
)
from airflow.sdk.definitions.callback import SyncCallback
from airflow.sdk.definitions.deadline import DeadlineAlert, DeadlineReference

from tidegate.errors import PipelineInvalid, SettingsInvalid
from tidegate.model.pipeline import Pipeline, Scheduling
from tidegate.model.schedule import AssetSchedule, DataSchedule
from tidegate.settings import Settings
from tidegate.yaml.load import legible_scheduling, load_defaults, load_pipeline, load_pipelines
from tidegate_airflow import tasks
from tidegate_airflow.assets import asset_reference, event_emitted, stream_alias
from tidegate_airflow.connections import ledger_exported, require_absolute_home
from tidegate_airflow.deployment import Deployment, spark_program
from tidegate_airflow.failures import log_failure, log_missed_deadline, measure_failure
from tidegate_airflow.new_data import waiting_asset
from tidegate_airflow.notify import PlainCallback
from tidegate_airflow.operators import (
    BatchOperator,
    ComputeOperator,
    PlanOperator,
    PublishOperator,
    StepOperator,
    ValidateOperator,
)
from tidegate_airflow.runs import ledger_run_id, recall_text
from tidegate_airflow.submission import submitted_arguments
from tidegate_airflow.triggers import run_params

START = datetime(2024, 1, 1, tzinfo=timezone.utc)
_RUN_ID = "{{ ledger_run_id(run_id, dag_run.run_after) }}"
LONGEST_TASK = timedelta(days=1)
"""The longest time of a batch. Maintenance deletes the files that a longer one would read (`maintenance`)."""
LONGEST_STEP = timedelta(hours=1)
"""The timeout of a step that computes and sends nothing."""
MAINTENANCE = "tidegate_maintenance"


def pipeline_dags(folder: str | os.PathLike[str] | None = None) -> dict[str, DAG]:
    """Return DAG id -> DAG, one for each file of the pipelines folder, named after the file.

    So two generations of a pipeline can run side by side. A file with mistakes keeps its DAG, whose first
    task fails with the mistakes. Pipelines whose promotions a person has to approve get another DAG (see
    `promotion`).

    Args:
        folder: the pipelines folder, here and on every worker; None: TIDEGATE_PIPELINES names it.

    Raises SettingsInvalid if the folder does not exist, PipelineInvalid for mistakes in its `defaults.yaml`.

    Example:
        globals().update(pipeline_dags())

    A worker that is about to run a task reads only the file of its DAG.
    """
    settings = parse_settings(folder)
    deployment = Deployment(load_defaults(settings.pipelines), settings.pipelines if folder else None)
    # A worker parses the DAG file again before each task, and names the DAG that it needs.
    requested = get_parsing_context().dag_id
    if requested is not None:
        name = deployment.file_name(requested)
        if deployment.dag_id(name) == requested and (file := settings.pipelines / f"{name}.yaml").is_file():
            return {requested: _dag_of_file(file, settings, deployment)}
    pipelines, errors = load_pipelines(settings.pipelines)
    dags = [_pipeline_dag(name, pipeline, settings, deployment) for name, pipeline in pipelines.items()]
    # One DAG file makes all DAGs: an exception for one pipeline would take all the others away.
    dags += [_broken_dag(error, settings, deployment) for error in errors]
    # A file with mistakes counts as well: a typo must not remove the approval of promotions.
    legible = [_legible(error, settings) for error in errors]
    dags += _promotion_dags([*pipelines.values(), *legible], deployment)
    return {dag.dag_id: dag for dag in dags}


def parse_settings(folder: str | os.PathLike[str] | None = None) -> Settings:
    """Return the settings while DAG files are parsed.

    Raises SettingsInvalid if the pipelines folder does not exist, or if TIDEGATE_HOME is a relative path.
    """
    require_absolute_home()
    # A copy: parsing this folder must not change what other DAG files see.
    chosen = {} if folder is None else {"TIDEGATE_PIPELINES": os.fspath(folder)}
    settings = Settings.from_environment({**os.environ, **chosen})
    if not settings.pipelines.is_dir():
        raise SettingsInvalid(
            f"There is no folder of pipelines {settings.pipelines}",
            "Set TIDEGATE_PIPELINES where Airflow runs, or name it: `pipeline_dags('/path/to/pipelines')`.",
        )
    return settings


def _dag_of_file(file: Path, settings: Settings, deployment: Deployment) -> DAG:
    try:
        pipeline = load_pipeline(file)
    except PipelineInvalid as error:
        return _broken_dag(error, settings, deployment)
    return _pipeline_dag(file.stem, pipeline, settings, deployment)


def _pipeline_dag(name: str, pipeline: Pipeline, settings: Settings, deployment: Deployment) -> DAG:
    arguments = deployment.dag_arguments(pipeline, _own_arguments(pipeline))
    return _dag(name, pipeline, settings, deployment, {**arguments, "doc_md": _documentation(pipeline)})


def _dag(
    name: str, pipeline: Scheduling, settings: Settings, deployment: Deployment, arguments: Mapping[str, Any]
) -> DAG:
    with DAG(
        dag_id=deployment.dag_id(name),
        schedule=_schedule(pipeline, deployment.dag_id(name)),
        start_date=pipeline.start_date or START,
        catchup=pipeline.catchup,
        # A backfill has its own limit beside this one; `order` keeps its runs in order.
        max_active_runs=1,
        params=run_params(),
        user_defined_macros={"ledger_run_id": ledger_run_id},
        deadline=_deadline(pipeline, deployment.on_missed_deadline(pipeline)),
        **arguments,
    ) as dag:
        spark_options = deployment.spark_arguments(pipeline, _spark_options(pipeline, settings))
        step_timeout = deployment.step_timeout(pipeline, LONGEST_STEP)
        _wire(name, pipeline, spark_options, step_timeout, deployment.batch_callbacks(pipeline))
    for step in dag.tasks:
        # The ledger has each step's result, and no task reads it from Airflow: storing it takes a request.
        step.do_xcom_push = False
    return dag


def _schedule(pipeline: Scheduling, dag_id: str) -> Any:
    """Return the schedule of `DAG`: a timetable, assets, both, or None."""
    schedule = pipeline.schedule
    if schedule is None or isinstance(schedule, str):
        return _by_cron(schedule, pipeline.timezone)
    assets = _assets(schedule, pipeline, dag_id)
    timetable = _by_cron(schedule.cron, pipeline.timezone)
    if timetable is None or assets is None:
        return assets or timetable
    return AssetOrTimeSchedule(timetable=timetable, assets=assets)


def _assets(schedule: AssetSchedule | DataSchedule, pipeline: Scheduling, dag_id: str) -> Any:
    """Return the assets whose updates start runs. A file with mistakes names no topics: then None."""
    if isinstance(schedule, DataSchedule):
        if not isinstance(pipeline, Pipeline):
            return None
        return AssetAll(waiting_asset(dag_id, pipeline, schedule.on_data))
    combine = AssetAny if schedule.when == "any" else AssetAll
    return combine(*map(asset_reference, schedule.assets))


def _by_cron(cron: str | None, timezone: str) -> CronDataIntervalTimetable | None:
    return None if cron is None else CronDataIntervalTimetable(cron, timezone=timezone)


def _own_arguments(pipeline: Scheduling) -> dict[str, Any]:
    """Return the arguments of the DAG and of all of its tasks, unless a file sets others."""
    return {"tags": ["tidegate"], "default_args": _default_args(pipeline)}


def _deadline(pipeline: Scheduling, notify: PlainCallback | None) -> DeadlineAlert | None:
    """Return the deadline of the runs. `notify` is the user's callback, called beside tidegate's."""
    if pipeline.deadline_ms is None:
        return None
    arguments = {"pipeline": pipeline.pipeline, "generation": pipeline.generation, "notify": notify}
    return DeadlineAlert(
        # From the queue on: a run that Airflow never starts can miss its deadline, too.
        DeadlineReference.DAGRUN_QUEUED_AT,
        timedelta(milliseconds=pipeline.deadline_ms),
        SyncCallback(log_missed_deadline, arguments),
    )


def _default_args(pipeline: Scheduling) -> dict[str, Any]:
    """Return the arguments that all tasks of a pipeline's DAG share."""
    stream: dict[str, Any] = {"pipeline": pipeline.pipeline, "generation": pipeline.generation}
    measured = partial(measure_failure, **stream)
    return {
        # A retry is safe at any step, and continues with the work that the ledger already has.
        "retries": 3,
        "retry_delay": timedelta(seconds=10),
        "retry_exponential_backoff": 2.0,
        "max_retry_delay": timedelta(minutes=5),
        "execution_timeout": LONGEST_TASK,
        # Steps of a begun batch go before plans of other runs, which may only find that they have to wait.
        "weight_rule": "upstream",
        "on_failure_callback": [measured, partial(log_failure, **stream)],
        "on_retry_callback": [measured],
    }


def _wire(
    name: str,
    pipeline: Scheduling,
    spark_options: dict[str, Any],
    step_timeout: timedelta,
    callbacks: dict[str, PlainCallback | None],
) -> None:
    """Add the tasks of a DAG.

    plan >> compute >> validate >> commit >> publish make the run's first batch, and `cover` makes the further
    batches that the run's interval needs. With `tasks: one` a single task, `batch`, does all of this.
    """
    stream = (pipeline.pipeline, pipeline.generation)
    outlets = [stream_alias(*stream)]
    # One task saves a process per step; its retries and timeouts are those of the whole batch.
    if pipeline.tasks == "one":
        whole = {"outlets": outlets, **callbacks, **spark_options}
        BatchOperator(task_id="batch", pipeline_file=name, **whole)
        return
    batch: dict[str, Any] = {"op_args": (*stream, _RUN_ID)}
    planned = PlanOperator(  # it also publishes the batch that an earlier run has left
        task_id="plan",
        python_callable=_plan,
        op_args=[name, *stream],
        execution_timeout=step_timeout,
        outlets=outlets,
    )
    computed = ComputeOperator(task_id="compute", **spark_options)
    validated = ValidateOperator(
        task_id="validate",
        python_callable=tasks.validate,
        execution_timeout=step_timeout,
        **callbacks,
        **batch,
    )
    committed = StepOperator(
        task_id="commit", python_callable=tasks.commit, execution_timeout=step_timeout, **batch
    )
    published = PublishOperator(
        task_id="publish",
        python_callable=_publish,
        op_kwargs={"submitted": submitted_arguments(spark_options)},
        outlets=outlets,
        **callbacks,
        **batch,
    )
    # `cover` computes in its own task, so it needs spark-submit's arguments, too.
    again = {"outlets": outlets, **callbacks, **spark_options}
    covered = BatchOperator(task_id="cover", pipeline_file=name, first=2, **again)
    planned >> computed >> validated >> committed >> published >> covered


def _spark_options(pipeline: Scheduling, settings: Settings) -> dict[str, Any]:
    """Return the arguments of spark-submit's operator."""
    return {
        "application": spark_program("compute"),
        "application_args": [pipeline.pipeline, str(pipeline.generation), _RUN_ID],
        "name": f"tidegate-{pipeline.pipeline}-g{pipeline.generation}",
        "driver_memory": settings.spark_memory,
        "durable": False,  # a retry starts a new application; the ledger has the work that is done
    }


def _plan(pipeline_file: str, pipeline: str, generation: int, **context: Any) -> bool:
    with ledger_exported(), event_emitted(context, pipeline, generation):
        return tasks.plan(pipeline_file, context)


def _publish(
    pipeline: str,
    generation: int,
    run: str,
    submitted: Mapping[str, Any],
    alert: Callable[[str], object] | None = None,
    **context: Any,
) -> bool:
    """Publish the batch. Return False if it covers the run's interval; `cover` is then skipped."""
    with ledger_exported():
        with event_emitted(context, pipeline, generation):
            tasks.publish(pipeline, generation, run, submitted, alert)
        return tasks.has_more_batches(pipeline, generation, context)


def _documentation(pipeline: Pipeline) -> str:
    return f"Generation {pipeline.generation} of `{pipeline.pipeline}`:\n\n```yaml\n{pipeline.text}\n```\n"


def _broken_dag(error: PipelineInvalid, settings: Settings, deployment: Deployment) -> DAG:
    """Return the DAG of a file with mistakes, with the same id, tasks and schedule.

    Runs that have begun continue as they were planned. The first task of a new run reads the file again, and
    fails with the mistakes that it still has.
    """
    # All problems of one error are of one file.
    file, scheduling = Path(error.problems[0].file), _legible(error, settings)
    problems = "\n".join(f"* {problem}" for problem in error.problems)
    arguments = deployment.dag_arguments(scheduling, _own_arguments(scheduling))
    arguments["tags"] = [*arguments["tags"], "invalid pipeline file"]
    arguments["doc_md"] = f"**{file.name} has mistakes:**\n\n{problems}\n"
    return _dag(file.stem, scheduling, settings, deployment, arguments)


def _legible(error: PipelineInvalid, settings: Settings) -> Scheduling:
    """Return the pipeline's name and schedule, as far as a file with mistakes still has them."""
    file = Path(error.problems[0].file)
    scheduling = legible_scheduling(_text_of(file), recall_text(settings.home, file.stem))
    # Without validation: the file's name need not be a legal pipeline name, and the DAG must exist.
    return scheduling or Scheduling.model_construct(pipeline=file.stem)


def _promotion_dags(schedulings: Iterable[Scheduling], deployment: Deployment) -> Iterator[DAG]:
    """Yield a DAG for each pipeline of which a file requires that a person approves promotions."""
    approving = {row.pipeline: row for row in schedulings if deployment.approves_promotions(row)}
    if approving:
        from tidegate_airflow.promotion import promotion_dag  # late: parsing is quicker without it
    for pipeline, scheduling in approving.items():
        arguments = deployment.dag_arguments(scheduling, _own_arguments(scheduling))
        dag_id = deployment.defaults.promotion_dag_id(pipeline)
        yield promotion_dag(dag_id, pipeline, {"start_date": START, **arguments})


def _text_of(file: Path) -> str:
    return file.read_text(encoding="utf-8", errors="replace") if file.is_file() else ""


def maintenance_dag(folder: str | os.PathLike[str] | None = None) -> DAG:
    """Migrate the ledger if it is of an older tidegate; then compact each stream that needs it, and clean all
    streams.

    Cleaning does not wait for compaction: it removes only files that were given up a day ago. One task runs
    at a time, so that the pipelines keep most of the machine.
    """
    # A stream whose file has mistakes is not compacted here; a batch compacts if that is overdue.
    pipelines, _ = load_pipelines(parse_settings(folder).pipelines)
    with DAG(
        dag_id=MAINTENANCE,
        schedule="@daily",
        start_date=START,
        catchup=False,
        max_active_runs=1,
        max_active_tasks=1,
        default_args={"retries": 3, "retry_delay": timedelta(minutes=1)},
        tags=["tidegate"],
        doc_md=maintenance_dag.__doc__,
    ) as dag:
        migrated = task(task_id="migrate")(tasks.migrate)()
        for name, pipeline in pipelines.items():
            compact = task(task_id=f"compact_{name}")(tasks.compact)
            migrated >> compact(pipeline.pipeline, pipeline.generation)
        # `clean` reads the streams from the ledger, so generations without a file are cleaned, too.
        migrated >> task(task_id="clean")(tasks.clean)()
    return dag
