"""The public names of `tidegate.spec`."""

from tidegate.formats.schemas import Payload, SinkSchema
from tidegate.spec.airflow import AirflowSettings, SparkPlacement
from tidegate.spec.cases import (
    Case,
    CaseRecord,
    Emission,
    Expectation,
    Tick,
    load_cases,
    parse_input,
    read_cases,
)
from tidegate.spec.column_changes import Change
from tidegate.spec.columns import Column
from tidegate.spec.compatibility import incompatible_changes, notable_changes
from tidegate.spec.compiled import compile_pipeline, read_compiled
from tidegate.spec.connection import Connection
from tidegate.spec.folder import DEFAULTS_FILE, pipeline_files
from tidegate.spec.kernel_stages import deduplication_stage, kernel_stage, message_columns, sequence_stage
from tidegate.spec.keys import DeduplicateColumns, Sequence
from tidegate.spec.load import (
    Defaults,
    legible_scheduling,
    load_defaults,
    load_pipeline,
    load_pipeline_of_folder,
    load_pipelines,
    parse_case_pipeline,
    parse_pipeline,
    stream_in_broken_file,
)
from tidegate.spec.lookup import Lookup
from tidegate.spec.names import quote
from tidegate.spec.pipeline import Pipeline, Scheduling
from tidegate.spec.planned import python_functions, suite_text, with_checkpoints, with_digests, with_suites
from tidegate.spec.quality import QualityCheck
from tidegate.spec.quarantine_rules import DeadLetterTopic
from tidegate.spec.schedule import OWN_ASSETS, AssetSchedule, asset_uri
from tidegate.spec.source import Source
from tidegate.spec.stage import Stage
from tidegate.spec.trusted import require_trusted, require_trusted_modules

__all__ = [
    "Pipeline",
    "Scheduling",
    "AssetSchedule",
    "OWN_ASSETS",
    "asset_uri",
    "Source",
    "Column",
    "DeduplicateColumns",
    "Sequence",
    "Lookup",
    "Stage",
    "Payload",
    "SinkSchema",
    "message_columns",
    "Connection",
    "DeadLetterTopic",
    "QualityCheck",
    "AirflowSettings",
    "SparkPlacement",
    "Defaults",
    "load_defaults",
    "DEFAULTS_FILE",
    "pipeline_files",
    "kernel_stage",
    "deduplication_stage",
    "sequence_stage",
    "load_pipeline",
    "load_pipeline_of_folder",
    "load_pipelines",
    "legible_scheduling",
    "stream_in_broken_file",
    "parse_pipeline",
    "parse_case_pipeline",
    "compile_pipeline",
    "python_functions",
    "suite_text",
    "with_checkpoints",
    "with_digests",
    "with_suites",
    "require_trusted",
    "require_trusted_modules",
    "Change",
    "incompatible_changes",
    "notable_changes",
    "read_compiled",
    "quote",
    "Case",
    "CaseRecord",
    "Tick",
    "Expectation",
    "Emission",
    "load_cases",
    "read_cases",
    "parse_input",
]
