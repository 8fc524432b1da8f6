"""A PgBouncer of the test run's own: each transaction gets any session of the server."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from sqlalchemy import create_engine, make_url
from sqlalchemy.exc import OperationalError

from tests.postgres import PASSWORD, PostgresServer, as_ordinary_user
from tidegate_dev.processes import Supervised, free_port

# One session for each database makes every second transaction follow one of another client.
_SETTINGS = """\
[databases]
* = host=127.0.0.1 port={server}
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = {port}
unix_socket_dir =
auth_type = plain
auth_file = {users}
pool_mode = transaction
default_pool_size = 2
server_round_robin = 1
ignore_startup_parameters = extra_float_digits
"""


@contextmanager
def pooled(server: PostgresServer, url: str) -> Iterator[str]:
    """Yield the URL of a database behind a pooler in the mode `transaction`; skips without PgBouncer."""
    program = shutil.which("pgbouncer") or shutil.which("pgbouncer", path="/usr/sbin")
    if program is None:
        pytest.skip("no PgBouncer is installed here")
    # not below pytest's own folder, into which no other user may look
    with TemporaryDirectory(prefix="tidegate-pooler-") as name:
        folder, port = Path(name), free_port()
        users, settings = folder / "users", folder / "pgbouncer.ini"
        users.write_text(f'"postgres" "{PASSWORD}"\n')
        settings.write_text(_SETTINGS.format(server=server.port, port=port, users=users))
        command = [*as_ordinary_user(folder, users, settings), program, str(settings)]
        pooler = Supervised("PgBouncer", command, folder / "pooler.log", os.environ, grace_s=1)
        pooled_url = make_url(url).set(port=port)

        def answers() -> bool:
            engine = create_engine(pooled_url)
            try:
                engine.connect().close()
            except OperationalError:
                return False
            finally:
                engine.dispose()
            return True

        with pooler:
            pooler.wait_ready(answers)
            yield pooled_url.render_as_string(hide_password=False)
