"""The files of the lake, on a disk or in an object store, durable once they are written.

Paths are relative to the lake's root, with `/` between their parts. Files are written once, whole, under
names that nobody else uses, and never changed. A manifest decides whether a file counts, never a listing.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import lru_cache
from itertools import takewhile
from pathlib import Path
from typing import Any, NamedTuple
from uuid import uuid4

import pyarrow as pa
from pyarrow.fs import (
    AwsStandardS3RetryStrategy,
    FileSelector,
    FileSystem,
    FileType,
    LocalFileSystem,
    S3FileSystem,
    SubTreeFileSystem,
)

from tidegate.errors import LakeDamaged, LakeUnavailable, SettingsInvalid

_ATTEMPTS = 5
_REQUEST_SECONDS = 20
"""How often a request to an object store is tried, and how long each may stay without an answer."""

_OTHER_SCHEMES = ("file://", "gs://", "abfs://", "abfss://")
"""Schemes beside s3:// that Arrow, delta-rs and obstore all support. Untested: there is no local server for
them.
"""


class Written(NamedTuple):
    """The identity of a file's content: its size in bytes, and its SHA-256 in hexadecimal."""

    bytes: int
    digest: str


def written_of(content: bytes) -> Written:
    """Return the size and digest of bytes in memory."""
    return Written(len(content), hashlib.sha256(content).hexdigest())


class Listed(NamedTuple):
    """An existing file. `changed_at`: epoch seconds."""

    path: str
    bytes: int
    changed_at: float


class Sink:
    """A Python file object for Arrow's writers, which counts and digests the bytes; see `written` and
    `footer`.
    """

    def __init__(self, stream: Any) -> None:
        self._stream = stream
        self._digest = hashlib.sha256()
        self._bytes = 0
        self._footer_start = 0
        self._footer_digest: Any = None
        # Arrow reads this attribute of a Python file object.
        self.closed = False

    def begin_footer(self) -> None:
        """Count all that is written from now on as the footer, too."""
        self._footer_start, self._footer_digest = self._bytes, hashlib.sha256()

    def write(self, data: Any) -> int:
        content = memoryview(data)
        self._digest.update(content)
        if self._footer_digest is not None:
            self._footer_digest.update(content)
        self._bytes += content.nbytes
        self._stream.write(content)
        return content.nbytes

    def tell(self) -> int:
        return self._bytes

    def flush(self) -> None:
        """Do nothing: the store decides when to flush."""

    def close(self) -> None:
        """Do nothing: the store closes what it has opened."""

    @property
    def written(self) -> Written:
        """The size and digest of all bytes so far."""
        return Written(self._bytes, self._digest.hexdigest())

    @property
    def footer(self) -> Written:
        """The size and digest of the footer alone. Raises ValueError if no footer was begun."""
        if self._footer_digest is None:
            raise ValueError("no footer was begun")
        return Written(self._bytes - self._footer_start, self._footer_digest.hexdigest())


@dataclass(frozen=True)
class Store:
    """The files below `root`, a folder or a URI such as `s3://bucket/lake`. It can be pickled.

    Object stores take their region, endpoint and credentials from the environment of the process
    (`AWS_REGION`, `AWS_ENDPOINT_URL`, `AWS_ACCESS_KEY_ID`, …), for files and for Delta tables alike.

    Example: `Store("/data/lake").read("orders/g1/manifests/0000000001-000001-9f86d081/manifest-5c1b….json")`.
    """

    root: str

    def uri(self, folder: str) -> str:
        """Return the absolute path or URI of a folder below the root, as Delta's libraries take it."""
        return f"{self._absolute_root}/{folder}"

    @property
    def _absolute_root(self) -> str:
        return self.root.rstrip("/") if "://" in self.root else str(Path(self.root).absolute())

    @property
    def is_remote(self) -> bool:
        """Whether each read is a request to an object store."""
        return self._folder is None

    @property
    def delta_options(self) -> dict[str, str] | None:
        """The options that delta-rs needs beside the environment; None on a disk."""
        if not self.is_remote:
            return None
        retries = {"max_retries": str(_ATTEMPTS), "timeout": f"{_REQUEST_SECONDS}s"}
        return retries | ({"allow_http": "true"} if _endpoint_is_plain() else {})

    @property
    def file_system(self) -> SubTreeFileSystem:
        """Arrow's file system, rooted at the store. Raises SettingsInvalid, LakeUnavailable."""
        with store_errors(self.root):
            return _file_system(self._absolute_root)

    @property
    def _folder(self) -> Path | None:
        """The folder of the files, if it is on a disk."""
        system = self.file_system
        return Path(system.base_path) if isinstance(system.base_fs, LocalFileSystem) else None

    @contextmanager
    def create(self, path: str) -> Iterator[Sink]:
        """Write a new file, which is complete and durable when the block ends. After an error in the block,
        no file counts.

        Raises LakeUnavailable.
        """
        folder = self._folder
        with store_errors(path):
            if folder is not None:
                _make_root(folder)
                (folder / path).parent.mkdir(parents=True, exist_ok=True)
            stream = self.file_system.open_output_stream(path)
        sink = Sink(stream)
        try:
            yield sink
        # The incomplete file stays: no manifest will ever name it, and cleaning removes it.
        except BaseException:
            with store_errors(path):
                stream.close()
            raise
        with store_errors(path):
            stream.close()
            if folder is not None:
                _flush(folder, path)

    def write(self, path: str, content: bytes) -> Written:
        """Write a small file at once, and return its size and digest. Raises LakeUnavailable."""
        with self.create(path) as sink:
            sink.write(content)
        return sink.written

    def replace(self, path: str, content: bytes) -> None:
        """Write a small file, whole, in place of the existing one. Raises LakeUnavailable."""
        folder = self._folder
        if folder is None:
            self.write(path, content)
            return
        draft = f"{path}.{uuid4().hex}.draft"
        self.write(draft, content)
        with store_errors(path):
            # A rename in one folder is atomic: a reader finds the old file or the new one, whole.
            (folder / draft).replace(folder / path)
            _flush(folder, path)

    def put_if_absent(self, path: str, content: bytes) -> bool:
        """Write a small file, whole, unless it exists; of several writers at once only one succeeds.

        Returns False if the file exists already. Raises LakeUnavailable.
        """
        folder = self._folder
        if folder is None:
            return self._put_object(path, content)
        draft = f"{path}.{uuid4().hex}.draft"
        self.write(draft, content)
        with store_errors(path):
            try:
                # A hard link fails if the target exists, and shows the file only when it is whole; a rename
                # would overwrite.
                os.link(folder / draft, folder / path)
            except FileExistsError:
                return False
            finally:
                (folder / draft).unlink()
            _flush(folder, path)
        return True

    def _put_object(self, path: str, content: bytes) -> bool:
        # imported late: users with the lake on a disk need not install it
        import obstore
        from obstore.exceptions import AlreadyExistsError, BaseError
        from obstore.store import from_url

        try:
            objects = from_url(
                self.root,
                client_options={"timeout": f"{_REQUEST_SECONDS}s", "allow_http": _endpoint_is_plain()},
                retry_config={"max_retries": _ATTEMPTS},
            )
            obstore.put(objects, path, content, mode="create")
        except AlreadyExistsError:
            return False
        except (BaseError, OSError) as error:
            raise file_unavailable(path, error) from error
        return True

    def make_root(self) -> None:
        """Make the root folder durably, if it is on a disk and missing. Raises LakeUnavailable."""
        folder = self._folder
        if folder is not None:
            with store_errors(self.root):
                _make_root(folder)

    def flush(self, paths: Iterable[str]) -> None:
        """Make those of the files that exist survive a power cut. Raises LakeUnavailable."""
        folder = self._folder
        if folder is None:
            return
        files = [folder / path for path in paths if (folder / path).is_file()]
        folders = {parent for file in files for parent in file.parents if parent.is_relative_to(folder)}
        with store_errors(self.root):
            # A file survives only if the entries of all folders above it do: POSIX flushes neither with the
            # file.
            for place in (*files, *sorted(folders, reverse=True)):
                _flush_place(place)

    def open(self, path: str) -> pa.NativeFile:
        """Open a file for random reads. Raises LakeDamaged if it does not exist, LakeUnavailable."""
        with store_errors(path):
            try:
                return self.file_system.open_input_file(path)
            except FileNotFoundError as error:
                raise missing(self.root, path) from error

    def read(self, path: str) -> bytes:
        """Return the bytes of a small file. Raises as `open`."""
        with store_errors(path), self.open(path) as file:
            return bytes(file.read())

    def digest(self, path: str) -> Written:
        """Return the size and digest of an existing file, read in full. Raises as `open`."""
        digest, size = hashlib.sha256(), 0
        with store_errors(path), self.open(path) as file:
            while block := file.read(4 * 1024 * 1024):
                digest.update(block)
                size += len(block)
        return Written(size, digest.hexdigest())

    def listed(self, folder: str) -> list[Listed]:
        """Return the files below a folder, by path; an empty list if there is no folder. Raises
        LakeUnavailable.

        Only cleaning and marks may list files: all others read manifests.
        """
        with store_errors(folder):
            selector = FileSelector(folder, recursive=True, allow_not_found=True)
            files = [info for info in self.file_system.get_file_info(selector) if info.type == FileType.File]
        return sorted(Listed(info.path, info.size, info.mtime_ns / 1e9) for info in files)

    def delete(self, path: str) -> None:
        """Remove a file, and on a disk the folder that it leaves empty; a missing file is removed already.

        Raises LakeUnavailable.
        """
        folder = self._folder
        with store_errors(path), suppress(FileNotFoundError):
            self.file_system.delete_file(path)
        if folder is not None:
            with suppress(OSError):
                # A folder that is not empty, or was removed by another process, is no error.
                (folder / path).parent.rmdir()


@lru_cache
def _file_system(root: str) -> SubTreeFileSystem:
    """Return Arrow's file system at a root. It is cached, since the client of an object store has
    connections.

    Raises SettingsInvalid if delta-rs and Arrow do not both support the root.
    """
    if root.startswith("s3://"):
        s3 = S3FileSystem(
            region=os.environ.get("AWS_REGION"),
            endpoint_override=os.environ.get("AWS_ENDPOINT_URL"),
            retry_strategy=AwsStandardS3RetryStrategy(max_attempts=_ATTEMPTS),
            request_timeout=_REQUEST_SECONDS,
            connect_timeout=_REQUEST_SECONDS,
            # otherwise Arrow begins a multipart upload; a small file is one request this way
            allow_delayed_open=True,
        )
        return SubTreeFileSystem(root.removeprefix("s3://"), s3)
    if "://" in root and not root.startswith(_OTHER_SCHEMES):
        raise SettingsInvalid(
            f"Files and tables cannot be in {root}",
            "Name a folder, or a URI that begins with s3://, gs://, abfs://, abfss:// or file://.",
        )
    system, folder = FileSystem.from_uri(root)
    return SubTreeFileSystem(folder, system)


def _endpoint_is_plain() -> bool:
    """Return whether the endpoint of the object store is used without TLS."""
    return os.environ.get("AWS_ENDPOINT_URL", "").startswith("http://")


def _flush(folder: Path, path: str) -> None:
    """Make a file and all folders between the root and the file survive a power cut."""
    for place in (folder / path, *(folder / path).parents):
        _flush_place(place)
        if place == folder:
            return


def _make_root(folder: Path) -> None:
    """Make the root and its missing parents, and flush the folders that they are made in."""
    missing = list(takewhile(lambda place: not place.exists(), (folder, *folder.parents)))
    if missing:
        folder.mkdir(parents=True, exist_ok=True)
    for place in missing:
        _flush_place(place.parent)


def _flush_place(place: Path) -> None:
    descriptor = os.open(place, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextmanager
def store_errors(path: str) -> Iterator[None]:
    """Turn failures of the store into typed ones. Raises LakeUnavailable."""
    try:
        yield
    except (OSError, pa.ArrowException) as error:
        raise file_unavailable(path, error) from error


def file_unavailable(path: str, error: Exception) -> LakeUnavailable:
    """Return the error for a file that cannot be used."""
    return unavailable(f"The lake's file {path}", error)


def unavailable(what: str, error: Exception) -> LakeUnavailable:
    """Return the error for anything in the lake that cannot be used; `what` names it at the start of the
    message.
    """
    # Only the first line: messages of libraries can go on over many lines.
    first_line = (str(error).splitlines() or [type(error).__name__])[0][:300]
    return LakeUnavailable(
        f"{what} cannot be used: {first_line}",
        "Check rights, space and TIDEGATE_LAKE; then run again, nothing is lost.",
    )


def missing(root: str, path: str) -> LakeDamaged:
    """Return the error for a file that a manifest names and the lake does not have."""
    return LakeDamaged(
        f"The lake {root} lacks the file {path}",
        "Restore it, or point TIDEGATE_LAKE at the lake that was written to; `tidegate doctor --deep` "
        "names all that is damaged. Or raise `generation` to start over.",
    )
