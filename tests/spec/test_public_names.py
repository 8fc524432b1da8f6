"""What others may use of the package."""

from __future__ import annotations

import tidegate.spec


def test_the_public_names_are_these() -> None:
    assert sorted(tidegate.spec.__all__) == [
        "Case",
        "CaseRecord",
        "ChangeEmit",
        "Column",
        "Emission",
        "Expectation",
        "KafkaSink",
        "Pipeline",
        "Quality",
        "Source",
        "Stage",
        "TableSink",
        "Tick",
        "UpdateEmit",
        "load_cases",
        "load_pipeline",
        "load_pipelines",
        "parse_case_pipeline",
        "parse_input",
        "parse_pipeline",
        "quote",
        "read_cases",
    ]


def test_every_public_name_is_there() -> None:
    assert all(hasattr(tidegate.spec, name) for name in tidegate.spec.__all__)
