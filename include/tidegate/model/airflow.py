"""`airflow`: settings of a pipeline's DAG: its owner, where its tasks run, and how long they may take.

Nothing here changes the result of a batch: plans do not contain it and no state depends on it, so you may
edit it at any time. Settings that a pipeline file leaves out come from `defaults.yaml` beside it (see
`yaml.load`), and then from Airflow.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

from pydantic import AfterValidator, Discriminator, Field, StrictBool, StrictInt, Tag

from tidegate.model.mistakes import listed, mistake
from tidegate.model.names import Duration, matching
from tidegate.model.scope import Model, distinct
from tidegate.model.trusted import check_class, check_function

_NAME = re.compile(r"[^\s].{0,98}[^\s]|[^\s]")
_check_memory = matching(
    re.compile(r"[1-9][0-9]{0,6}[mg]", re.IGNORECASE),
    "is no size of memory",
    "Write mebibytes or gibibytes: `1500m` or `4g`.",
)
_CONF_FAMILIES = (
    *("spark.executor.", "spark.driver.", "spark.cores.", "spark.task.", "spark.memory.", "spark.storage."),
    *("spark.dynamicAllocation.", "spark.scheduler.", "spark.locality.", "spark.shuffle.", "spark.network."),
    *("spark.rpc.", "spark.kubernetes.", "spark.yarn.", "spark.ui.", "spark.eventLog.", "spark.local."),
)
"""Prefixes of settings that change where and how fast Spark computes, but never a result."""

_Block = TypeVar("_Block", bound="Defaulted")


def _check_name(name: str) -> str:
    """Check a name in Airflow, which stores up to a hundred characters."""
    if _NAME.fullmatch(name) and name.isprintable():
        return name
    raise mistake(f"{name!r} is not a name", "Write 1 to 100 characters, without blanks around them.")


def _check_conf(name: str) -> str:
    """Allow only settings that cannot change a result, since tidegate sets those, and that are not secret."""
    # A list of what is allowed: Spark adds settings with each release, and one may change a result.
    if name.startswith(_CONF_FAMILIES):
        return name
    families = listed([f"{family}…" for family in _CONF_FAMILIES[:4]])
    fix = (
        f"Set where and how fast Spark computes, such as {families}. What expressions mean tidegate sets "
        "itself; what is secret belongs into the Spark connection."
    )
    raise mistake(f"`{name}` is not a setting that a pipeline may give to Spark", fix)


def _at_most_a_day(milliseconds: int) -> int:
    """Bound a task's time: maintenance deletes the files of an attempt that is older than a day."""
    if milliseconds <= 24 * 60 * 60 * 1000:
        return milliseconds
    raise mistake(
        "a task may take a day at most", "Write `24h` or less; let a batch read less: `max_records`."
    )


Name = Annotated[str, AfterValidator(_check_name)]
Memory = Annotated[str, AfterValidator(_check_memory)]
Number = Annotated[StrictInt, Field(ge=1, lt=2**31)]


class Defaulted(Model):
    """Settings of which some are written in the file, and the rest come from defaults."""

    def over(self: _Block, defaults: _Block) -> _Block:
        """Return these settings, with `defaults` for those that are not written. Mappings are merged by name.

        A written null removes a default: the setting is then Airflow's own.
        """
        # `model_fields_set` tells a written null, which removes a default, from a field that is not written.
        own = {name: _over(getattr(self, name), getattr(defaults, name)) for name in self.model_fields_set}
        return defaults.model_copy(update=own)


def _over(value: Any, default: Any) -> Any:
    if isinstance(value, Defaulted):
        return value.over(default)
    return {**default, **value} if isinstance(value, dict) and isinstance(default, dict) else value


class SparkPlacement(Defaulted):
    """Settings of the Spark that computes a pipeline's batches.

    These are arguments of spark-submit. A task that starts a `local` Spark itself takes `driver_memory` and
    `conf`. A Spark Connect server was started with settings of its own, so only `connection` counts for it.
    """

    connection: Name | None = Field(
        default=None, description="Another connection of Airflow than `spark_default`."
    )
    driver_memory: Memory | None = Field(default=None, description="The driver's Java heap.")
    executor_memory: Memory | None = Field(default=None, description="An executor's Java heap.")
    executor_cores: Number | None = Field(default=None, description="Cores of an executor.")
    executors: Number | None = Field(default=None, description="How many executors.")
    conf: dict[Annotated[str, AfterValidator(_check_conf)], str | StrictBool | StrictInt] | None = Field(
        default=None, description="Settings of Spark that say where and how fast it computes."
    )


class Notifier(Model):
    """A notifier of Airflow: a class that derives from Airflow's BaseNotifier, and its arguments.

    Arguments that the class lists in `template_fields` may contain templates.
    """

    notifier: Annotated[str, AfterValidator(check_class)] = Field(
        description="Its class, `module:Class`, of a module that TIDEGATE_PYTHON_MODULES lists."
    )
    arguments: dict[str, Any] = Field(
        alias="with", default={}, description="What it is made with. Secrets belong into its connection."
    )

    @property
    def plain(self) -> dict[str, Any]:
        """The notifier as plain values, which Airflow can serialize with the DAG."""
        return {"notifier": self.notifier, "with": self.arguments}


if TYPE_CHECKING:
    Callback = str | Notifier
else:
    Callback = Annotated[
        Annotated[Annotated[str, AfterValidator(check_function)], Tag("function")]
        | Annotated[Notifier, Tag("notifier")],
        Discriminator(lambda written: "notifier" if isinstance(written, (dict, Notifier)) else "function"),
    ]
"""`module:function`, where the name may also be a notifier or a notifier class; or a notifier class
with arguments.
"""


class AirflowSettings(Defaulted):
    """Settings of a pipeline's DAG and its tasks. Callbacks get Airflow's context."""

    owner: Name | None = Field(default=None, description="Whose the DAG is.")
    tags: Annotated[tuple[Name, ...], AfterValidator(distinct)] = Field(
        default=(), description="Added to the tag `tidegate`."
    )
    pool: Name | None = Field(default=None, description="The pool that its tasks take slots of.")
    queue: Name | None = Field(default=None, description="The queue that its tasks are sent to.")
    retries: Annotated[StrictInt, Field(ge=0, lt=1000)] | None = Field(
        default=None, description="How often a task is tried again. Null: 3 times."
    )
    retry_delay_ms: Duration | None = Field(
        alias="retry_delay", default=None, description="How long the first retry waits. Null: 10 s."
    )
    task_timeout_ms: Annotated[Duration, AfterValidator(_at_most_a_day)] | None = Field(
        alias="task_timeout",
        default=None,
        description="How long a task may take. Null: a day; an hour for `plan`, `validate` and `commit`.",
    )
    run_timeout_ms: Duration | None = Field(
        alias="run_timeout", default=None, description="How long a run may take. Null: as long as it takes."
    )
    on_task_failure: Callback | None = Field(
        default=None, description="Called when a task has failed for good."
    )
    on_task_retry: Callback | None = Field(default=None, description="Called before a task is tried again.")
    on_run_failure: Callback | None = Field(default=None, description="Called when a run has failed.")
    on_run_success: Callback | None = Field(default=None, description="Called when a run has succeeded.")
    on_missed_deadline: Callback | None = Field(
        default=None, description="Called when a run has missed the pipeline's `deadline`."
    )
    on_quality: Callback | None = Field(
        default=None, description="Called for each quality suite that warns, or stops the batch."
    )
    on_quarantine: Callback | None = Field(
        default=None,
        description="Called for a batch that puts more into quarantine than `quarantine` allows.",
    )
    on_freshness: Callback | None = Field(
        default=None, description="Called for a batch whose emissions were out later than `freshness` allows."
    )
    approve_promotion: StrictBool | None = Field(
        default=None, description="Whether a person approves each promotion before it is decided. Null: no."
    )
    spark: SparkPlacement = Field(
        default=SparkPlacement(), description="Settings of the Spark that computes."
    )
