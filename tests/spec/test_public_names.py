"""What others may use of the package."""

from __future__ import annotations

import tidegate.spec


def test_the_public_names_are_these() -> None:
    assert sorted(tidegate.spec.__all__) == [
        "AirflowSettings",
        "AssetSchedule",
        "Case",
        "CaseRecord",
        "Change",
        "Column",
        "Connection",
        "DEFAULTS_FILE",
        "DeadLetterTopic",
        "DeduplicateColumns",
        "Defaults",
        "Emission",
        "Expectation",
        "Lookup",
        "OWN_ASSETS",
        "Payload",
        "Pipeline",
        "QualityCheck",
        "Scheduling",
        "Sequence",
        "SinkSchema",
        "Source",
        "SparkPlacement",
        "Stage",
        "Tick",
        "asset_uri",
        "compile_pipeline",
        "deduplication_stage",
        "incompatible_changes",
        "kernel_stage",
        "legible_scheduling",
        "load_cases",
        "load_defaults",
        "load_pipeline",
        "load_pipeline_of_folder",
        "load_pipelines",
        "message_columns",
        "notable_changes",
        "parse_case_pipeline",
        "parse_input",
        "parse_pipeline",
        "pipeline_files",
        "python_functions",
        "quote",
        "read_cases",
        "read_compiled",
        "require_trusted",
        "require_trusted_modules",
        "sequence_stage",
        "stream_in_broken_file",
        "suite_text",
        "with_checkpoints",
        "with_digests",
        "with_suites",
    ]


def test_every_public_name_is_there() -> None:
    assert all(hasattr(tidegate.spec, name) for name in tidegate.spec.__all__)
