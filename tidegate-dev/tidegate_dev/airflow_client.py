"""A client for the REST API of a running Airflow 3. It uses the standard library only."""

from __future__ import annotations

import json
import time
import urllib.error
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from urllib.parse import quote

from tidegate.errors import SetupFailed
from tidegate_dev.processes import TIMEOUT_S

_POLL_S = 0.25
_ENDED = ("success", "failed")
_ANSWER_S = 30
# A busy machine may let a request wait for longer than that. A second GET changes nothing, unlike a POST.
_GET_TRIES = 5


@dataclass(frozen=True)
class TaskEnd:
    """The state of a task instance of a run.

    `state` is Airflow's word, such as `success`; None: not scheduled.
    """

    task_id: str
    map_index: int
    state: str | None
    try_number: int


@dataclass(frozen=True)
class RunEnd:
    """A run that ended with the state `success` or `failed`.

    `log_tail` has the last lines of the first failed task's log; it is empty if no task failed.
    """

    dag_id: str
    run_id: str
    state: str
    tasks: tuple[TaskEnd, ...]
    log_tail: str = ""


class AirflowClient:
    """A client that logs in at its first request, and again when its token has expired."""

    def __init__(self, url: str, username: str, password: str) -> None:
        self.url = url
        self.username = username
        self.password = password
        self._token = ""

    def api(self, method: str, path: str, json: Mapping[str, Any] | None = None) -> Any:
        """Call a path below `/api/v2` and return the decoded response.

        Raises SetupFailed if Airflow does not answer, or answers with a status of 400 or more.

        Example: `client.api("GET", "/dags/stock/dagRuns")["dag_runs"]`
        """
        status, answer = self._call(method, path, json)
        if status >= 400:
            detail = answer.get("detail") if isinstance(answer, dict) else answer
            raise SetupFailed(f"Airflow answered {status} to {method} {path}: {detail}")
        return answer

    def wait_dag(self, dag_id: str, timeout_s: float = TIMEOUT_S) -> None:
        """Return when Airflow has parsed the DAG.

        Raises SetupFailed after `timeout_s`, or if a DAG file cannot be imported, with its stack trace.
        """
        deadline = time.monotonic() + timeout_s
        while self._call("GET", f"/dags/{quote(dag_id)}")[0] != 200:
            for error in self.api("GET", "/importErrors")["import_errors"]:
                raise SetupFailed(f"{error['filename']} cannot be imported:\n{error['stack_trace']}")
            self._pause_until(deadline, f"DAG {dag_id} did not appear in {timeout_s:.0f} s")

    def unpause(self, dag_id: str) -> None:
        self._set_paused(dag_id, False)

    def pause(self, dag_id: str) -> None:
        """Pause the DAG: Airflow starts none of its tasks, and running tasks continue."""
        self._set_paused(dag_id, True)

    def _set_paused(self, dag_id: str, is_paused: bool) -> None:
        self.api("PATCH", f"/dags/{quote(dag_id)}?update_mask=is_paused", {"is_paused": is_paused})

    def trigger(
        self,
        dag_id: str,
        run_id: str | None = None,
        logical_date: datetime | None = None,
        data_interval: tuple[datetime, datetime] | None = None,
        conf: Mapping[str, Any] | None = None,
    ) -> str:
        """Trigger a run and return its id.

        Args:
            dag_id: The DAG, which must be parsed.
            run_id: The id of the run; None: Airflow generates one.
            logical_date: None: the start of `data_interval`, because Airflow refuses an interval without it.
            data_interval: Start and end; the end is the clock of the run's batches.
            conf: The configuration of the run.

        Raises SetupFailed if Airflow refuses the run.
        """
        start, end = data_interval or (None, None)
        body = {
            "dag_run_id": run_id,
            "logical_date": _iso(logical_date or start),
            "data_interval_start": _iso(start),
            "data_interval_end": _iso(end),
            "conf": dict(conf or {}),
        }
        return str(self.api("POST", f"/dags/{quote(dag_id)}/dagRuns", body)["dag_run_id"])

    def wait_run(self, dag_id: str, run_id: str, timeout_s: float = TIMEOUT_S) -> RunEnd:
        """Wait for the run's end and return it, also if the run failed.

        Raises SetupFailed if the run has not ended after `timeout_s`.
        """
        deadline = time.monotonic() + timeout_s
        path = f"/dags/{quote(dag_id)}/dagRuns/{quote(run_id, safe='')}"
        while (state := self.api("GET", path)["state"]) not in _ENDED:
            self._pause_until(deadline, f"Run {run_id} of {dag_id} is still {state} after {timeout_s:.0f} s")
        rows = self.api("GET", f"{path}/taskInstances?limit=1000")["task_instances"]
        tasks = tuple(TaskEnd(r["task_id"], r["map_index"], r["state"], r["try_number"]) for r in rows)
        failed = next((task for task in tasks if task.state == "failed"), None)
        return RunEnd(dag_id, run_id, state, tasks, self._task_log(path, failed) if failed else "")

    def _task_log(self, run_path: str, task: TaskEnd, lines: int = 40) -> str:
        path = f"{run_path}/taskInstances/{quote(task.task_id)}/logs/{task.try_number}"
        content = self.api("GET", f"{path}?full_content=true&map_index={task.map_index}")["content"]
        text = [line for entry in content for line in _log_lines(entry)]
        return "\n".join(text[-lines:])

    def _pause_until(self, deadline: float, complaint: str) -> None:
        if time.monotonic() > deadline:
            raise SetupFailed(complaint, f"Look at {self.url}.")
        time.sleep(_POLL_S)

    def _call(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> tuple[int, Any]:
        for _ in range(2):
            self._token = self._token or self._log_in()
            tries = _GET_TRIES if method == "GET" else 1
            status, answer = self._http(method, f"/api/v2{path}", body, tries)
            if status != 401:
                break
            self._token = ""  # the token has expired: log in and try once more
        return status, answer

    def _log_in(self) -> str:
        status, answer = self._http(
            "POST", "/auth/token", {"username": self.username, "password": self.password}
        )
        if status >= 400:
            raise SetupFailed(f"Airflow refused to log in {self.username}: {answer}", "Check the password.")
        return str(answer["access_token"])

    def _http(
        self, method: str, path: str, body: Mapping[str, Any] | None = None, tries: int = 1
    ) -> tuple[int, Any]:
        """Return status and decoded response for any status. Raises SetupFailed if nothing answers."""
        data = None if body is None else json.dumps(body).encode()
        headers = {"Content-Type": "application/json", "Accept": "application/json"}
        if self._token:
            headers["Authorization"] = f"Bearer {self._token}"
        request = urllib.request.Request(self.url + path, data, headers, method=method)
        # urllib would send the request to HTTP_PROXY, which cannot reach this machine's loopback address.
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        try:
            with opener.open(request, timeout=_ANSWER_S) as answer:
                return answer.status, _decode(answer.read())
        except urllib.error.HTTPError as error:
            return error.code, _decode(error.read())
        except OSError as error:
            if isinstance(error, TimeoutError) and tries > 1:
                return self._http(method, path, body, tries - 1)
            raise SetupFailed(f"Airflow at {self.url} does not answer: {error}", "Is it running?") from error


def _decode(raw: bytes) -> Any:
    try:
        return json.loads(raw) if raw else None
    except ValueError:
        return raw.decode(errors="replace")


def _iso(instant: datetime | None) -> str | None:
    return None if instant is None else instant.isoformat()


def _log_lines(entry: Mapping[str, Any] | str) -> list[str]:
    """Return an entry of a task's log as lines, with the frames of its exception if it has one."""
    if isinstance(entry, str):
        return [entry]
    lines = [str(entry.get("event", ""))]
    for detail in entry.get("error_detail") or ():
        frames = detail.get("frames") or ()
        lines += [f"  {frame['filename']}:{frame['lineno']} in {frame['name']}" for frame in frames]
        lines.append(f"{detail.get('exc_type')}: {detail.get('exc_value')}")
    return lines
