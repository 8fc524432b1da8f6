"""Great Expectations on a batch's outbox: a suite file in, a verdict and Data Docs out."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa

from tidegate.errors import SettingsInvalid
from tidegate.quality.expectations import gx
from tidegate.quality.pages import site
from tidegate.quality.verdict import ExpectationResult, Verdict


def check(suite_file: Path, values: pa.Table, docs: Path, run: str) -> Verdict:
    """Validate `values` against a suite; writes Data Docs below `docs`. Raises SettingsInvalid."""
    context = gx.get_context(mode="ephemeral")
    context.variables.progress_bars = {"globally": False}
    _add_docs_site(context, docs)
    suite = context.suites.add(_suite(suite_file))
    batch = context.data_sources.add_pandas("outbox").add_dataframe_asset("outbox")
    definition = gx.ValidationDefinition(
        name=run, data=batch.add_batch_definition_whole_dataframe("batch"), suite=suite
    )
    result = context.validation_definitions.add(definition).run(
        batch_parameters={"dataframe": values.to_pandas()}, result_format="SUMMARY"
    )
    context.build_data_docs()
    expectations = tuple(map(_expectation, result.results))
    return Verdict(bool(result.success), _summary(result, docs), expectations)


def _expectation(result: Any) -> ExpectationResult:
    config = result.expectation_config
    return ExpectationResult(
        config.type, config.kwargs.get("column"), bool(result.success), result.result.get("unexpected_count")
    )


def _suite(path: Path) -> Any:
    try:
        stored = json.loads(path.read_text())
        return gx.ExpectationSuite(
            **{key: stored[key] for key in ("name", "expectations", "meta") if key in stored}
        )
    except FileNotFoundError as error:
        raise SettingsInvalid(
            f"The quality suite {path} does not exist", "Write it, or correct `quality.suite`."
        ) from error
    except (ValueError, TypeError, gx.exceptions.GreatExpectationsError) as error:
        raise SettingsInvalid(
            f"{path} is not a Great Expectations suite: {str(error).splitlines()[0]}", "Correct the file."
        ) from error


def _add_docs_site(context: Any, docs: Path) -> None:
    docs.mkdir(parents=True, exist_ok=True)
    for name in list(context.list_data_docs_sites()):
        context.delete_data_docs_site(name)
    context.add_data_docs_site(site_name="tidegate", site_config=site(docs))


def _summary(result: Any, docs: Path) -> str:
    failed = [each for each in result.results if not each.success]
    if not failed:
        return f"{len(result.results)} expectations passed"
    texts = [
        f"{each.expectation_config.type}({each.expectation_config.kwargs.get('column', '')}): "
        f"{each.result.get('unexpected_count', 'an error')} unexpected"
        for each in failed
    ]
    return f"{'; '.join(texts)} (see {docs / 'index.html'})"
