"""`python -m tests.spark.fake_server MOMENT STATUS`: a server that speaks Spark Connect, and what `connect`
makes of it. Prints the error's class, its text, and what the server was asked.

At `version`, the first question, or at `interrupt`, the second one, it answers with the status; or it `ends`,
or `hangs`. A status of `closed` is that of a session that the server has closed; the next session is open.
A status with a dot is another version, which it says that it is.
"""

from __future__ import annotations

import json
import os
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import grpc
import pyspark
from google.protobuf.any_pb2 import Any as AnyMessage
from google.rpc.error_details_pb2 import ErrorInfo
from google.rpc.status_pb2 import Status
from grpc_status import rpc_status
from pyspark.sql.connect.proto import base_pb2, base_pb2_grpc

from tidegate.errors import TidegateError
from tidegate.spark import connect

SAYS = "there are too many"


class FakeServer(base_pb2_grpc.SparkConnectServiceServicer):  # type: ignore[misc]
    """Answers what it is asked, until the moment comes."""

    def __init__(self, moment: str, status: str) -> None:
        self._moment, self._status = moment, status
        self.asked: list[str] = []
        self._server = grpc.server(ThreadPoolExecutor(4))
        base_pb2_grpc.add_SparkConnectServiceServicer_to_server(self, self._server)
        self.port = self._server.add_insecure_port("127.0.0.1:0")
        self._server.start()

    def AnalyzePlan(self, request: Any, context: grpc.ServicerContext) -> Any:  # noqa: N802
        self._ask("version", context)
        version = self._status if "." in self._status else pyspark.__version__
        answer = base_pb2.AnalyzePlanResponse.SparkVersion(version=version)
        return base_pb2.AnalyzePlanResponse(session_id=request.session_id, spark_version=answer)

    def Interrupt(self, request: Any, context: grpc.ServicerContext) -> Any:  # noqa: N802
        self._ask("interrupt", context)
        return base_pb2.InterruptResponse(session_id=request.session_id)

    def _ask(self, moment: str, context: grpc.ServicerContext) -> None:
        self.asked.append(moment)
        if moment != self._moment or "." in self._status:
            return
        if self._status == "hangs":
            threading.Event().wait()
        elif self._status == "ends":
            self._server.stop(None)
            threading.Event().wait()
        elif self._status == "closed":
            if len(self.asked) == 1:
                context.abort_with_status(_session_closed())
        else:
            context.abort(grpc.StatusCode[self._status], SAYS)


def _session_closed() -> Any:
    detail = AnyMessage()
    detail.Pack(ErrorInfo(reason="x", metadata={"errorClass": connect._SESSION_CLOSED}))
    text = f"[{connect._SESSION_CLOSED}] The handle is invalid."
    return rpc_status.to_status(
        Status(code=grpc.StatusCode.INTERNAL.value[0], message=text, details=[detail])
    )


def main(moment: str, status: str) -> None:
    connect._ANSWER_SECONDS = 3
    connect._RETRIES |= {"max_retries": 3}
    server = FakeServer(moment, status)
    error = ("", "")
    try:
        connect.connect(f"sc://127.0.0.1:{server.port}", "a stream")
    except TidegateError as caught:
        error = (type(caught).__name__, str(caught))
    print(json.dumps([*error, server.asked]), flush=True)
    os._exit(0)  # whatever threads still wait


if __name__ == "__main__":
    main(*sys.argv[1:])
