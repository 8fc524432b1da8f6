"""The jars of the local broker: fetched once by coordinates, each checked against `jars.lock`.

Ivy, which is among pyspark's own jars, does the download; the lock lists every jar, so nothing is resolved.
"""

from __future__ import annotations

import hashlib
import importlib.util
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit
from urllib.request import getproxies
from xml.sax.saxutils import quoteattr

from tidegate.errors import SetupFailed, TidegateError
from tidegate.local.java import find_java
from tidegate.local.truststore import truststore_options, write_truststore

BROKER = "broker"
LOCK = Path(__file__).with_name("jars.lock")
_PATTERN = "[artifact]-[revision].[ext]"
_SETTINGS = (
    '<ivysettings><settings defaultResolver="central"/>'
    '<resolvers><ibiblio name="central" m2compatible="true" usepoms="false"/></resolvers></ivysettings>'
)


@dataclass(frozen=True)
class LockedJar:
    """One line of the lock: coordinates, and what the file must be."""

    organisation: str
    artifact: str
    version: str
    sha256: str
    size_bytes: int

    @property
    def file_name(self) -> str:
        return f"{self.artifact}-{self.version}.jar"


def ensure_jars(set_name: str, home: Path, lock: Path = LOCK) -> list[Path]:
    """The jars of a set in `lock`, below `home`; those that are missing are downloaded first."""
    missing = [jar for jar in locked_jars(set_name, lock) if not _is_there(jar, home / "jars" / set_name)]
    if missing:
        _download(missing, home / "jars" / set_name)
    return find_jars(set_name, home, lock)


def find_jars(set_name: str, home: Path, lock: Path = LOCK) -> list[Path]:
    """The jars of a set below `home`, without network; SetupFailed when they are not all there."""
    folder, jars = home / "jars" / set_name, locked_jars(set_name, lock)
    missing = [jar.file_name for jar in jars if not _is_there(jar, folder)]
    if missing:
        what = f"{len(missing)} of {len(jars)} {set_name} jars are missing in {folder} ({missing[0]} …)"
        raise SetupFailed(what, "Run `make setup`, which downloads them.")
    return [folder / jar.file_name for jar in jars]


def locked_jars(set_name: str, lock: Path = LOCK) -> list[LockedJar]:
    """What a lock lists for a set, in its order."""
    lines = [line.split() for line in lock.read_text().splitlines() if not line.startswith("#")]
    found = [_parse(line) for line in lines if line and line[0] == set_name]
    if not found:
        raise SetupFailed(f"No set of jars is named {set_name!r}", f"See {lock} for those there are.")
    return found


def verify(jar: LockedJar, path: Path) -> None:
    """SetupFailed when the file at `path` is not the one that the lock means."""
    actual = hashlib.sha256(path.read_bytes()).hexdigest()
    if actual != jar.sha256:
        what = f"{jar.file_name} has checksum {actual[:12]}…, but {jar.sha256[:12]}… is locked"
        raise SetupFailed(what, "The download was cut short or tampered with. Run the same again.")


def _parse(fields: list[str]) -> LockedJar:
    _, coordinates, checksum, size = fields
    organisation, artifact, version = coordinates.split(":")
    return LockedJar(organisation, artifact, version, checksum.removeprefix("sha256:"), int(size))


def _is_there(jar: LockedJar, folder: Path) -> bool:
    """Cheap on purpose: a file comes into the folder only after its checksum was found right."""
    path = folder / jar.file_name
    return path.is_file() and path.stat().st_size == jar.size_bytes


def _download(jars: list[LockedJar], folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        # beside the folder, so that the moves at the end are atomic and two downloads do not meet
        with tempfile.TemporaryDirectory(prefix=".fetch-", dir=folder.parent) as scratch:
            _retrieve(jars, Path(scratch))
            for jar in jars:
                verify(jar, Path(scratch) / jar.file_name)
            for jar in jars:
                shutil.move(Path(scratch) / jar.file_name, folder / jar.file_name)
    except OSError as error:
        what = f"Cannot write jars to {folder}: {error.strerror}"
        raise SetupFailed(what, "Make room there, or set TIDEGATE_HOME to another folder.") from error


def _retrieve(jars: list[LockedJar], scratch: Path) -> None:
    (scratch / "settings.xml").write_text(_SETTINGS)
    (scratch / "ivy.xml").write_text(_ivy_module(jars))
    store = scratch / "authorities.jks"
    output = _run_ivy(scratch, [])
    if output and "PKIX" in output and write_truststore(store):
        output = _run_ivy(scratch, truststore_options(store))
    if output:
        what = f"Downloading {len(jars)} jars failed: {_reason(output)}"
        raise SetupFailed(what, "Check the network, then run the same again.")


def _run_ivy(scratch: Path, jvm_options: list[str]) -> str:
    """Ivy's output when it failed, else nothing."""
    spec = importlib.util.find_spec("pyspark")
    if spec is None or spec.origin is None:
        raise SetupFailed("pyspark is not installed in this Python", "Run `make setup`.")
    command = [str(find_java()), *jvm_options, *_proxy_options()]
    command += ["-cp", str(Path(spec.origin).parent / "jars" / "*"), "org.apache.ivy.Main"]
    command += ["-settings", str(scratch / "settings.xml"), "-ivy", str(scratch / "ivy.xml")]
    command += ["-cache", str(scratch / "cache"), "-retrieve", str(scratch / _PATTERN)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return "" if done.returncode == 0 else done.stdout + done.stderr


def _ivy_module(jars: list[LockedJar]) -> str:
    dependencies = "".join(
        f"<dependency org={quoteattr(jar.organisation)} name={quoteattr(jar.artifact)}"
        f' rev={quoteattr(jar.version)} transitive="false" conf="default->default"/>'
        for jar in jars
    )
    return (
        '<ivy-module version="2.0"><info organisation="tidegate" module="jars"/><configurations>'
        f'<conf name="default"/></configurations><dependencies>{dependencies}</dependencies></ivy-module>'
    )


def _proxy_options() -> list[str]:
    """A JVM does not read HTTPS_PROXY, which pip and everything else here goes by."""
    proxy = urlsplit(getproxies().get("https", ""))
    options = [f"-Dhttps.proxyHost={proxy.hostname}"] if proxy.hostname else []
    return options + ([f"-Dhttps.proxyPort={proxy.port}"] if proxy.hostname and proxy.port else [])


def _reason(output: str) -> str:
    """The line of Ivy's long report that says most."""
    lines = [line.strip(": \t") for line in output.splitlines() if line.strip(": \t")]
    for mark in ("No space left", "HttpClientHandler", "not found", "FAILED", "Exception", "rror"):
        if found := [line for line in lines if mark in line]:
            return found[0].split(" url=")[0].removeprefix("HttpClientHandler: ")
    return lines[-1] if lines else "no output"


if __name__ == "__main__":
    try:
        ensure_jars(BROKER, Path(sys.argv[1]))
    except TidegateError as error:
        sys.exit(str(error))
