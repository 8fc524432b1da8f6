"""The application: routes, and pages for errors."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Depends, FastAPI, HTTPException, Query, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, RedirectResponse, Response
from starlette.exceptions import HTTPException as AnyHttpException

from tidegate import inspect, quarantine
from tidegate.app import App
from tidegate.console.host import Host, host_of
from tidegate.console.pages import actions, charts, generations, graph, keys
from tidegate.console.pages.charts import overview_plot
from tidegate.console.parameters import (
    LONGEST_KEY,
    MOST_NUMBER,
    Batch,
    Generation,
    Viewed,
    entry_of,
    readable_entries,
    refuse_null,
    stream_of_entry,
)
from tidegate.console.render import docs_page, links_of, render
from tidegate.console.rows import (
    IndexRow,
    PartitionRow,
    condition_badge,
    failed_batch,
    newest_try,
    partition_rows,
)
from tidegate.errors import TidegateError, Transient
from tidegate.inspect import CatalogEntry
from tidegate.inspect.examine import examine_entry
from tidegate.ledger import Stream
from tidegate.ledger.report import STEPS
from tidegate.quality.site import has_page, read_page

PIPELINES_PER_PAGE = 25
BATCHES_PER_PAGE = 25
of_all, of_pipeline, with_records = APIRouter(), APIRouter(), APIRouter()
_SENTENCES = {
    403: "You may not read this DAG.",
    404: "There is no such page.",
}


@of_all.get("/")
def index(
    request: Request,
    page: Annotated[int, Query(ge=1, le=MOST_NUMBER)] = 1,
    q: Annotated[str, Query(max_length=200)] = "",
    only: Annotated[str, Query(pattern="^(failing|no-file)?$")] = "",
) -> Response:
    """The pipelines that the user may read, a page at a time."""
    app = host_of(request).open_app()
    # Filtered before anything is counted, so that totals reveal no pipeline that the user may not see.
    entries = readable_entries(request, inspect.catalog_entries(app))
    # of all streams, without Kafka: the count of failing pipelines is on each page
    troubled = inspect.troubled_streams(app)
    failing = [entry for entry in entries if entry.problems or troubled.intersection(entry.streams)]
    without_file = [entry for entry in entries if entry.is_without_file]
    lists = {"": _problems_first(entries, failing), "failing": failing, "no-file": without_file}
    shown = [entry for entry in lists[only] if q.lower() in entry.name.lower()]
    first = (page - 1) * PIPELINES_PER_PAGE
    on_page = shown[first : first + PIPELINES_PER_PAGE]
    # Kafka is asked only for the pipelines on this page.
    rows, lags = _index_rows(host_of(request).connected(app, on_page), on_page)
    return render(
        request,
        "index.html",
        title="Pipelines",
        rows=rows,
        lags=lags,
        total=len(entries),
        failing=len(failing),
        shown=len(shown),
        first=first,
        page=page,
        has_more=len(shown) > first + PIPELINES_PER_PAGE,
        q=q,
        only=only,
        without_file=without_file,
        is_at_work=any(row.is_at_work for row in rows),
    )


def _problems_first(entries: list[CatalogEntry], failing: list[CatalogEntry]) -> list[CatalogEntry]:
    """Return the pipelines that have a file, those with problems first."""
    with_problems = {entry.name for entry in failing}
    with_file = [entry for entry in entries if not entry.is_without_file]
    return sorted(with_file, key=lambda entry: entry.name not in with_problems)


@of_pipeline.get("")
def pipeline(
    request: Request,
    dag_id: str,
    generation: Generation = None,
    before: Batch = None,
) -> Response:
    """A pipeline: how it stands, what went out and what was held back, its batches, its quarantine."""
    app = host_of(request).open_app()
    entry, reads_logs = entry_of(app, dag_id), host_of(request).reads_logs(request, dag_id)
    shown: dict[str, Any] = {
        "title": dag_id,
        "entry": entry,
        "reads_logs": reads_logs,
        "waiting": host_of(request).waiting_reasons(dag_id),
    }
    if not entry.streams:
        return render(request, "pipeline.html", stream=None, **shown)
    stream = stream_of_entry(entry, generation)
    details = inspect.details(host_of(request).connected(app, [entry]), stream, before, BATCHES_PER_PAGE)
    samples, no_samples = quarantine.samples_of(app, stream, details.recent) if reads_logs else ([], None)
    summary = quarantine.summary_of(app, stream, details.recent) if reads_logs else None
    failed = failed_batch(details)
    listed = [item.run_id for item in (*details.page, *([failed] if failed else [])) if item.run_id]
    runs = host_of(request).existing_runs(dag_id, listed)
    return render(
        request,
        "pipeline.html",
        stream=stream,
        details=details,
        overview=details.overview,
        badge=condition_badge(entry, details.overview),
        failed=failed,
        causes=[cause for cause in details.overview.condition.causes if cause.error != "PipelineInvalid"],
        chart=overview_plot(details.recent),
        partitions=partition_rows(details),
        most_partitions=PartitionRow.MOST,
        summary=summary,
        samples=samples,
        no_samples=no_samples,
        runs=runs,
        before=before,
        steps=STEPS,
        **shown,
    )


@of_pipeline.get("/batches/{seq}")
def batch(request: Request, dag_id: str, seq: int, viewed: Viewed) -> Response:
    """A batch: what it read, counted and sent, how long it took, and what failed.

    Raises HTTPException (404) if there is no such batch.
    """
    app, stream = viewed.app, viewed.stream
    # `before` is exclusive; the newest batch before `seq` + 1 is `seq` itself, if it exists.
    entries = inspect.batch_history(app.ledger, stream, seq + 1, limit=1) if 0 < seq < MOST_NUMBER else []
    if not entries or entries[0].seq != seq:
        raise HTTPException(404, f"{stream} has no batch {seq}.")
    (entry,) = entries
    reads_logs = host_of(request).reads_logs(request, dag_id)
    samples, no_samples = quarantine.samples_of(app, stream, entries, 50) if reads_logs else ([], None)
    return render(
        request,
        "batch.html",
        title=f"{dag_id}: batch {seq}",
        dag_id=dag_id,
        stream=stream,
        batch=entry,
        head=app.ledger.head(stream).seq,
        metrics=inspect.stage_metrics(app, stream, seq),
        quality=newest_try(app.ledger.quality(stream, seq)),
        reads_logs=reads_logs,
        samples=samples,
        no_samples=no_samples,
        runs=host_of(request).existing_runs(dag_id, [entry.run_id] if entry.run_id else []),
        steps=STEPS,
    )


@with_records.get("/emissions")
def emissions(
    request: Request,
    dag_id: str,
    viewed: Viewed,
    stage: Annotated[str, Query(max_length=200)] = "",
    key: Annotated[str, Query(max_length=LONGEST_KEY)] = "",
    before: Batch = None,
    only: Annotated[str, Query(pattern="^(sent|withheld)?$")] = "",
) -> Response:
    """The newest emissions of a stage, apart those that go out and those that are withheld; or those of a
    key. Raises HTTPException (404) if no stage of this name stores emissions.
    """
    app, stream = viewed.app, viewed.stream
    stages = inspect.stored_stages(app, stream)
    if stage and stage not in stages:
        raise HTTPException(404, f"{stream} stores no emissions of a stage {stage}.")
    chosen = stage or (stages[-1] if stages else "")
    return render(
        request,
        "emissions.html",
        title=f"{dag_id}: emissions",
        dag_id=dag_id,
        stream=stream,
        stages=stages,
        stage=chosen,
        key=key,
        lists={
            name: inspect.newest_emissions(
                app, stream, chosen, key or None, before, is_withheld=name == "withheld"
            )
            for name in _emission_lists(app, stream, only)
            if chosen
        },
    )


def _emission_lists(app: App, stream: Stream, only: str) -> tuple[str, ...]:
    """Return the lists of a page of emissions: `withheld` only if some batches may be withheld."""
    lists = ("sent", "withheld") if app.ledger.charge(stream.pipeline).promotions else ("sent",)
    return tuple(name for name in lists if only in ("", name))


@with_records.get("/check")
def check(request: Request, dag_id: str) -> Response:
    """Show doctor's findings about a pipeline. It asks Kafka and the sinks, so it can take a while."""
    app = host_of(request).open_app()
    entry = entry_of(app, dag_id)
    findings = list(examine_entry(host_of(request).connected(app, [entry]), entry))
    return render(
        request,
        "check.html",
        title=f"{dag_id}: check",
        dag_id=dag_id,
        name=entry.name,
        stream=next(iter(entry.streams), None),
        findings=findings,
    )


@with_records.get("/docs/{path:path}")
def docs(request: Request, dag_id: str, path: str) -> Response:
    """A page of Data Docs, which quotes rows: only of the pipeline's own streams, and what they share.

    Raises HTTPException (404) for any other page.
    """
    app = host_of(request).open_app()
    entry = entry_of(app, dag_id)
    # The pages of all pipelines are in one folder; the right to one DAG must not open another's.
    own = {f"{stream.pipeline}/g{stream.generation}" for stream in entry.streams}
    if path in ("", "index.html"):
        indexes = (f"{stream.pipeline}/g{stream.generation}/index.html" for stream in entry.streams)
        for index in indexes:
            if has_page(app.settings.data_docs, index):
                return RedirectResponse(links_of(request).docs(dag_id, index), 303)
        sentence = "No check of a batch has written a page yet: the first batch with a quality suite does."
        return render(request, "notice.html", title="Data Docs", dag_id=dag_id, sentence=sentence)
    # `static` has style sheets that all pages share, and no rows.
    if path.startswith("static/") or "/".join(path.split("/")[:2]) in own:
        content = read_page(app.settings.data_docs, path)
        if content is not None:
            return docs_page(path, content)
    raise HTTPException(404, f"{dag_id} has no such page of Data Docs.")


@of_pipeline.get("/quality/{run_id:path}")
def quality(request: Request, dag_id: str, run_id: str) -> Response:
    """Redirect to the newest page of Data Docs for the batch of a run; without one, show a page that says
    so.
    """
    app = host_of(request).open_app()
    ledger_id = host_of(request).run_in_ledger(dag_id, run_id)
    for stream in entry_of(app, dag_id).streams:
        outcome = app.ledger.run(stream, ledger_id)
        if outcome is None or outcome.seq is None:
            continue
        pages = [result.page for result in app.ledger.quality(stream, outcome.seq) if result.page is not None]
        if pages:
            return RedirectResponse(links_of(request).docs(dag_id, pages[-1]), 303)
        return RedirectResponse(links_of(request).batch(dag_id, stream, outcome.seq), 303)
    return _run_without_batch(request, dag_id, run_id, None)


@of_pipeline.get("/runs/{run_id:path}")
def run(request: Request, dag_id: str, run_id: str) -> Response:
    """Redirect to the batch of a run of the DAG; without one, show a page that says why."""
    app = host_of(request).open_app()
    entry, ledger_id = entry_of(app, dag_id), host_of(request).run_in_ledger(dag_id, run_id)
    for stream in entry.streams:
        outcome = app.ledger.run(stream, ledger_id)
        if outcome is None:
            continue
        if outcome.seq is not None:
            return RedirectResponse(links_of(request).batch(dag_id, stream, outcome.seq), 303)
        return _run_without_batch(request, dag_id, run_id, outcome.note)
    return _run_without_batch(request, dag_id, run_id, None)


def _run_without_batch(request: Request, dag_id: str, run_id: str, note: str | None) -> Response:
    sentence = "This run has planned no batch: it waits, or it failed before. Its log says why."
    if note is not None:
        sentence = f"This run has no batch: {note}."
    return render(request, "notice.html", title=run_id, dag_id=dag_id, sentence=sentence, run_id=run_id)


def _index_rows(app: App, entries: list[CatalogEntry]) -> tuple[list[IndexRow], inspect.Lags]:
    streams = [entry.streams[0] for entry in entries if entry.streams]
    overviews, lags = inspect.overviews(app, streams, app.settings.page_wait)
    by_stream = {overview.stream: overview for overview in overviews}
    return [IndexRow.from_entry(entry, by_stream) for entry in entries], lags


def create_app(host: Host) -> FastAPI:
    """Return the application, without FastAPI's pages about its interface, which would be open to
    everybody.
    """
    app = FastAPI(title="tidegate", docs_url=None, redoc_url=None, openapi_url=None)
    app.state.host = host
    app.include_router(of_all, dependencies=host.may_enter)
    enters = [Depends(refuse_null), *host.may_enter]
    own = "/pipelines/{dag_id}"
    for pages in (of_pipeline, charts.router, graph.router):
        app.include_router(pages, prefix=own, dependencies=[*enters, *host.may_read_runs])
    rights = [*enters, *host.may_read_runs, *host.may_read_logs]
    for pages in (with_records, actions.router, keys.router, generations.router):
        app.include_router(pages, prefix=own, dependencies=rights)
    app.add_exception_handler(AnyHttpException, _refused)
    app.add_exception_handler(RequestValidationError, _malformed)
    app.add_exception_handler(TidegateError, _failed)
    return app


def _refused(request: Request, error: Exception) -> Response:
    """Lead a person who is not logged in to the login; return a page with the reason otherwise."""
    assert isinstance(error, AnyHttpException)
    # Scripts and probes get a status that they can read, and no redirect to a login form.
    if not _is_browser(request):
        return JSONResponse({"detail": error.detail}, error.status_code)
    if error.status_code == 401:
        # 303 makes the browser use GET for the login, whatever the refused request was.
        return RedirectResponse(host_of(request).login_path(request), 303)
    # Only 404 of tidegate's own routes has a sentence for people; the framework's are "Not Found".
    detail = error.detail if isinstance(error, HTTPException) and error.status_code == 404 else None
    sentence = _SENTENCES.get(error.status_code, str(error.detail)) if not detail else str(detail)
    return render(request, "error.html", error.status_code, title="No page", sentence=sentence)


def _malformed(request: Request, error: Exception) -> Response:
    """Return a page that names the parameters of an address that cannot be used, and what they must be."""
    assert isinstance(error, RequestValidationError)
    mistakes = "; ".join(f"{mistake['loc'][-1]}: {mistake['msg']}" for mistake in error.errors())
    sentence = f"The address of this page cannot be used. {mistakes}."
    if not _is_browser(request):
        return JSONResponse({"detail": sentence}, 422)
    return render(request, "error.html", 422, title="No page", sentence=sentence)


def _is_browser(request: Request) -> bool:
    return "text/html" in request.headers.get("accept", "")


def _failed(request: Request, error: Exception) -> Response:
    """Return a page with tidegate's error, such as a ledger that does not answer. Its sentences contain no
    secret.
    """
    assert isinstance(error, TidegateError)
    status = 503 if isinstance(error, Transient) else 500
    name = type(error).__name__
    return render(request, "error.html", status, title=name, sentence=str(error))
