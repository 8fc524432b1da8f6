"""All that `tidegate.spec` has for others."""

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
from tidegate.spec.columns import Column
from tidegate.spec.compatibility import Change, incompatible_changes, notable_changes
from tidegate.spec.compiled import compile_pipeline, read_compiled
from tidegate.spec.deduplicate import DeduplicateColumns
from tidegate.spec.emit import (
    Buffer,
    ChangeEmit,
    IntervalEmit,
    ThresholdEmit,
    TimeLimitEmit,
    UpdateEmit,
    WindowCloseEmit,
)
from tidegate.spec.equal import PythonEqual, SqlEqual, Within
from tidegate.spec.kernel import deduplication_stage, kernel_stage
from tidegate.spec.load import (
    load_pipeline,
    load_pipelines,
    parse_case_pipeline,
    parse_pipeline,
    stream_in_broken_file,
)
from tidegate.spec.lookup import Lookup
from tidegate.spec.names import quote
from tidegate.spec.pipeline import Pipeline, Quality
from tidegate.spec.planned import python_functions, with_digests
from tidegate.spec.reduce import Aggregate
from tidegate.spec.sinks import KafkaSink, MessageRules, Sink, SinkModel, SqlSink, TableSink
from tidegate.spec.source import Source
from tidegate.spec.stage import Stage
from tidegate.spec.trusted import require_trusted
from tidegate.spec.window import HoppingWindow, SessionWindow, TumblingWindow

__all__ = [
    "Pipeline",
    "Source",
    "Column",
    "DeduplicateColumns",
    "Lookup",
    "Stage",
    "TumblingWindow",
    "HoppingWindow",
    "SessionWindow",
    "Aggregate",
    "UpdateEmit",
    "ChangeEmit",
    "Within",
    "SqlEqual",
    "PythonEqual",
    "WindowCloseEmit",
    "TimeLimitEmit",
    "ThresholdEmit",
    "IntervalEmit",
    "Buffer",
    "Sink",
    "SinkModel",
    "MessageRules",
    "KafkaSink",
    "TableSink",
    "SqlSink",
    "Quality",
    "kernel_stage",
    "deduplication_stage",
    "load_pipeline",
    "load_pipelines",
    "stream_in_broken_file",
    "parse_pipeline",
    "parse_case_pipeline",
    "compile_pipeline",
    "python_functions",
    "with_digests",
    "require_trusted",
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
