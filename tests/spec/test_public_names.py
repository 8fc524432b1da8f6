"""What others may use of the package."""

from __future__ import annotations

import tidegate.spec


def test_the_public_names_are_these() -> None:
    assert sorted(tidegate.spec.__all__) == [
        "Aggregate",
        "Buffer",
        "Case",
        "CaseRecord",
        "Change",
        "ChangeEmit",
        "Column",
        "DeduplicateColumns",
        "Emission",
        "Expectation",
        "HoppingWindow",
        "IntervalEmit",
        "KafkaSink",
        "Lookup",
        "MessageRules",
        "Pipeline",
        "PythonEqual",
        "Quality",
        "SessionWindow",
        "Sink",
        "SinkModel",
        "Source",
        "SqlEqual",
        "SqlSink",
        "Stage",
        "TableSink",
        "ThresholdEmit",
        "Tick",
        "TimeLimitEmit",
        "TumblingWindow",
        "UpdateEmit",
        "WindowCloseEmit",
        "Within",
        "compile_pipeline",
        "deduplication_stage",
        "incompatible_changes",
        "kernel_stage",
        "load_cases",
        "load_pipeline",
        "load_pipelines",
        "notable_changes",
        "parse_case_pipeline",
        "parse_input",
        "parse_pipeline",
        "python_functions",
        "quote",
        "read_cases",
        "read_compiled",
        "require_trusted",
        "stream_in_broken_file",
        "with_digests",
    ]


def test_every_public_name_is_there() -> None:
    assert all(hasattr(tidegate.spec, name) for name in tidegate.spec.__all__)
