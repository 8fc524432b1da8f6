"""The addresses of pages."""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import quote, urlencode

if TYPE_CHECKING:
    from tidegate.ledger import Stream


class Links:
    """The paths of pages. `base` is the path of tidegate's pages, `airflow` that of Airflow's, if it serves
    them.
    """

    def __init__(self, base: str, airflow: str | None) -> None:
        self.base, self.airflow = base, airflow

    @property
    def index(self) -> str:
        """The page of all pipelines."""
        return f"{self.base}/"

    def pipeline(self, dag_id: str, stream: Stream | None = None) -> str:
        """Return the page of a pipeline; without a stream, in the generation of its file.

        Example: `/tidegate/pipelines/orders?generation=2`
        """
        generation = f"?generation={stream.generation}" if stream is not None else ""
        return f"{self.base}/pipelines/{quoted(dag_id)}{generation}"

    def batch(self, dag_id: str, stream: Stream, seq: int) -> str:
        """Return the page of a batch.

        Example: `/tidegate/pipelines/orders/batches/7?generation=2`
        """
        return f"{self.base}/pipelines/{quoted(dag_id)}/batches/{seq}?generation={stream.generation}"

    def docs(self, dag_id: str, page: str) -> str:
        """Return a page of Data Docs, by its path below their root.

        Example: `/tidegate/pipelines/orders/docs/orders/g1/index.html`
        """
        return f"{self.base}/pipelines/{quoted(dag_id)}/docs/{page}"

    def emissions(
        self, dag_id: str, stream: Stream | None = None, stage: str | None = None, key: str | None = None
    ) -> str:
        """Return the page of the newest emissions of a stage, or of a key.

        Example: `/tidegate/pipelines/orders/emissions?generation=2&stage=orders&key=s1`
        """
        asked = {"generation": stream.generation if stream else None, "stage": stage, "key": key}
        query = urlencode({name: value for name, value in asked.items() if value})
        return f"{self.base}/pipelines/{quoted(dag_id)}/emissions" + (f"?{query}" if query else "")

    def withheld(self, dag_id: str, stream: Stream) -> str:
        """Return the page of the emissions that a generation withholds.

        Example: `/tidegate/pipelines/orders/emissions?generation=2&only=withheld`
        """
        return f"{self.emissions(dag_id, stream)}&only=withheld"

    def key(
        self,
        dag_id: str,
        stream: Stream,
        key: str = "",
        batch: int | None = None,
        before: int | None = None,
        records: int | None = None,
    ) -> str:
        """Return the page of a key.

        Args:
            batch: With the state after this batch; None: now.
            before: With the events of batches before this one; None: of the newest.
            records: With the records that this batch read, from Kafka; None: with none.

        Example: `/tidegate/pipelines/orders/keys?generation=2&key=s1&batch=7`
        """
        asked = {"key": key, "batch": batch, "before": before, "records": records}
        query = {name: value for name, value in asked.items() if value}
        return f"{self.page(dag_id, 'keys', stream)}{'&' if query else ''}{urlencode(query)}"

    def charts(self, dag_id: str, stream: Stream, span: str = "") -> str:
        """Return the page of charts; `span` is the time that they show, by default the last day.

        Example: `/tidegate/pipelines/orders/charts?generation=2&range=week`
        """
        return self.page(dag_id, "charts", stream) + (f"&range={quoted(span)}" if span else "")

    def page(self, dag_id: str, name: str, stream: Stream | None = None) -> str:
        """Return another page of a pipeline, by the last part of its path.

        Example: `/tidegate/pipelines/orders/generations?generation=2`
        """
        generation = f"?generation={stream.generation}" if stream is not None else ""
        return f"{self.base}/pipelines/{quoted(dag_id)}/{name}{generation}"

    def check(self, dag_id: str) -> str:
        """Return the page with the findings of doctor.

        Example: `/tidegate/pipelines/orders/check`
        """
        return f"{self.base}/pipelines/{quoted(dag_id)}/check"

    def dag(self, dag_id: str) -> str:
        """Return the page of the DAG in Airflow.

        Example: `/dags/orders`
        """
        return f"{self.airflow}/dags/{quoted(dag_id)}"

    def run(self, dag_id: str, run_id: str) -> str:
        """Return the page of the run in Airflow.

        Example: `/dags/orders/runs/nightly`
        """
        return f"{self.airflow}/dags/{quoted(dag_id)}/runs/{quoted(run_id)}"


def quoted(part: str) -> str:
    """Return a part of a path with separators escaped. Example: `quoted("a/b")` is `a%2Fb`."""
    # Run ids contain `+` and `:`, and may contain `/`.
    return quote(part, safe="")
