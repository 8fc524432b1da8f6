"""`airflow`: how a pipeline's DAG stands in an Airflow: whose it is, where its tasks run, and for how long.

Nothing here changes what a batch means: no plan has it, no state depends on it, and it may be edited at any
time. What is not said in a pipeline file comes from `defaults.yaml` beside it (see `spec.defaults`), and else
from Airflow.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

from pydantic import AfterValidator, Discriminator, Field, StrictBool, StrictInt, Tag

from tidegate.spec.durations import Duration
from tidegate.spec.mistakes import listed, mistake
from tidegate.spec.scope import Model, distinct
from tidegate.spec.trusted import check_class, check_function

_NAME = re.compile(r"[^\s].{0,98}[^\s]|[^\s]")
_MEMORY = re.compile(r"[1-9][0-9]{0,6}[mg]", re.IGNORECASE)
_CONF_FAMILIES = (
    *("spark.executor.", "spark.driver.", "spark.cores.", "spark.task.", "spark.memory.", "spark.storage."),
    *("spark.dynamicAllocation.", "spark.scheduler.", "spark.locality.", "spark.shuffle.", "spark.network."),
    *("spark.rpc.", "spark.kubernetes.", "spark.yarn.", "spark.ui.", "spark.eventLog.", "spark.local."),
)
"""Beginnings of settings that say where and how fast Spark computes, and not what."""

_Block = TypeVar("_Block", bound="Defaulted")


def _check_name(name: str) -> str:
    """Owners, pools, queues, tags and connections: Airflow keeps up to a hundred characters of them."""
    if _NAME.fullmatch(name) and name.isprintable():
        return name
    raise mistake(f"{name!r} is not a name", "Write 1 to 100 characters, without blanks around them.")


def _check_memory(text: str) -> str:
    if _MEMORY.fullmatch(text):
        return text
    raise mistake(f"{text!r} is no size of memory", "Write mebibytes or gibibytes: `1500m` or `4g`.")


def _check_conf(name: str) -> str:
    """Only what cannot change a result: all else tidegate sets itself. And nothing that is secret."""
    if name.startswith(_CONF_FAMILIES):
        return name
    known = listed([f"{family}…" for family in _CONF_FAMILIES[:4]])
    fix = (
        f"Set where and how fast Spark computes, such as {known}. What expressions mean tidegate sets "
        "itself; what is secret belongs into the Spark connection."
    )
    raise mistake(f"`{name}` is not a setting that a pipeline may give to Spark", fix)


Name = Annotated[str, AfterValidator(_check_name)]
Memory = Annotated[str, AfterValidator(_check_memory)]
Number = Annotated[StrictInt, Field(ge=1, lt=2**31)]


class Defaulted(Model):
    """Settings of which some are written, and the others come from elsewhere."""

    def over(self: _Block, defaults: _Block) -> _Block:
        """These, and where they say nothing the defaults, within mappings, too. A null takes a default back:
        it is as if neither said anything.
        """
        own = {name: _over(getattr(self, name), getattr(defaults, name)) for name in self.model_fields_set}
        return defaults.model_copy(update=own)


def _over(value: Any, default: Any) -> Any:
    if isinstance(value, Defaulted):
        return value.over(default)
    return {**default, **value} if isinstance(value, dict) and isinstance(default, dict) else value


class SparkPlacement(Defaulted):
    """What spark-submit is told of a pipeline's batches. A Spark Connect server has settings of its own:
    there only `connection` counts.
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
    """One of Airflow's notifiers: a class that derives from its BaseNotifier, and what it is made with.

    Texts may have templates, in those arguments that the class renders.
    """

    notifier: Annotated[str, AfterValidator(check_class)] = Field(
        description="Its class, `module:Class`, of a module that TIDEGATE_PYTHON_MODULES lists."
    )
    arguments: dict[str, Any] = Field(
        alias="with", default={}, description="What it is made with. Secrets belong into its connection."
    )

    @property
    def plain(self) -> dict[str, Any]:
        """As Airflow can store it with a DAG."""
        return {"notifier": self.notifier, "with": self.arguments}


def _form(written: Any) -> str:
    return "notifier" if isinstance(written, (dict, Notifier)) else "function"


if TYPE_CHECKING:
    Callback = str | Notifier
else:
    Callback = Annotated[
        Annotated[Annotated[str, AfterValidator(check_function)], Tag("function")]
        | Annotated[Notifier, Tag("notifier")],
        Discriminator(_form),
    ]
"""`module:function`, also a notifier or a class of notifiers by that name; or such a class with arguments."""


class AirflowSettings(Defaulted):
    """Of a pipeline's DAG and its tasks. Callbacks get Airflow's context."""

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
    task_timeout_ms: Duration | None = Field(
        alias="task_timeout", default=None, description="How long a task may take. Null: as long as it takes."
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
        default=None, description="Called for each quality suite that finds what is to be told, or stops."
    )
    on_quarantine: Callback | None = Field(
        default=None,
        description="Called for a batch that puts more into quarantine than `quarantine` bears with.",
    )
    approve_promotion: StrictBool | None = Field(
        default=None, description="Whether a person approves each promotion before it is decided. Null: no."
    )
    spark: SparkPlacement = Field(default=SparkPlacement(), description="What spark-submit is told.")
