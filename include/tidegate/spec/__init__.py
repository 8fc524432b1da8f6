"""The pipeline file: its grammar, its checks, and errors that teach."""

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
from tidegate.spec.load import load_pipeline, load_pipelines, parse_case_pipeline, parse_pipeline
from tidegate.spec.names import quote
from tidegate.spec.pipeline import Pipeline, Quality
from tidegate.spec.sinks import KafkaSink, TableSink
from tidegate.spec.source import Source
from tidegate.spec.stage import ChangeEmit, Stage, UpdateEmit

__all__ = [
    "Pipeline",
    "Source",
    "Column",
    "Stage",
    "UpdateEmit",
    "ChangeEmit",
    "KafkaSink",
    "TableSink",
    "Quality",
    "load_pipeline",
    "load_pipelines",
    "parse_pipeline",
    "parse_case_pipeline",
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
