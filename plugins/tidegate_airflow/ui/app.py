"""The application that Airflow serves below /tidegate: routes, and pages for errors."""

from __future__ import annotations

from airflow.api_fastapi.app import get_auth_manager
from fastapi import FastAPI, HTTPException, Request
from fastapi.responses import JSONResponse, RedirectResponse, Response
from starlette.exceptions import HTTPException as AnyHttpException

from tidegate.errors import TidegateError, Transient
from tidegate_airflow.ui.pages import render
from tidegate_airflow.ui.routes import router

_SENTENCES = {
    403: "You may not read this DAG.",
    404: "There is no such page.",
    422: "The address of this page is not one of tidegate's.",
}


def create_app() -> FastAPI:
    """Return the application, without FastAPI's pages about its interface, which would be open to
    everybody.
    """
    app = FastAPI(title="tidegate", docs_url=None, redoc_url=None, openapi_url=None)
    app.include_router(router)
    app.add_exception_handler(AnyHttpException, _refused)
    app.add_exception_handler(TidegateError, _failed)
    return app


def _refused(request: Request, error: Exception) -> Response:
    """Lead a person who is not logged in to the login; return a page with the reason otherwise."""
    assert isinstance(error, AnyHttpException)
    # Scripts and probes get a status that they can read, and no redirect to a login form.
    if "text/html" not in request.headers.get("accept", ""):
        return JSONResponse({"detail": error.detail}, error.status_code)
    if error.status_code == 401:
        # 303 makes the browser use GET for the login, whatever the refused request was.
        return RedirectResponse(get_auth_manager().get_url_login(next_url=str(request.url)), 303)
    # Only 404 of tidegate's own routes has a sentence for people; the framework's are "Not Found".
    detail = error.detail if isinstance(error, HTTPException) and error.status_code == 404 else None
    sentence = _SENTENCES.get(error.status_code, str(error.detail)) if not detail else str(detail)
    return render(request, "error.html", error.status_code, title="No page", sentence=sentence)


def _failed(request: Request, error: Exception) -> Response:
    """Return a page with tidegate's error, such as a ledger that does not answer. Its sentences contain no
    secret.
    """
    assert isinstance(error, TidegateError)
    status = 503 if isinstance(error, Transient) else 500
    name = type(error).__name__
    return render(request, "error.html", status, title=name, sentence=str(error))
