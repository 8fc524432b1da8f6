"""The jars of the local broker: downloaded once, and checked against `jars.lock`.

Ivy, which is one of pyspark's jars, downloads them. The lock lists every jar, so Ivy does not resolve
dependencies.
"""

from __future__ import annotations

import hashlib
import importlib.util
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from urllib.parse import urlsplit
from urllib.request import getproxies
from xml.sax.saxutils import quoteattr

from tidegate.errors import SetupFailed, TidegateError
from tidegate.spark.java import find_java
from tidegate_dev.truststore import truststore_options, write_truststore

BROKER = "broker"
LOCK = Path(__file__).with_name("jars.lock")
_PATTERN = "[artifact]-[revision](-[classifier]).[ext]"
_SETTINGS = (
    '<ivysettings><settings defaultResolver="central"/>'
    '<resolvers><ibiblio name="central" m2compatible="true" usepoms="false"/></resolvers></ivysettings>'
)


@dataclass(frozen=True)
class LockedJar:
    """One line of the lock: Maven coordinates, and the checksum and size of the file.

    `classifier` names one of several jars of an artifact; "" is the main one.
    """

    organisation: str
    artifact: str
    version: str
    sha256: str
    size_bytes: int
    classifier: str = ""

    @property
    def file_name(self) -> str:
        return "-".join(filter(None, (self.artifact, self.version, self.classifier))) + ".jar"


def ensure_jars(set_name: str, home: Path, lock: Path = LOCK) -> list[Path]:
    """Return the jars of a set below `home`, after downloading those that are missing.

    Args:
        set_name: A set of `lock`, such as `broker`.
        home: The folder of the local stack; jars are in `jars/SET` below it.
        lock: The file with the coordinates and checksums.

    Raises SetupFailed if a download fails, or if a jar has another checksum than the lock.
    """
    missing = [jar for jar in locked_jars(set_name, lock) if not _is_present(jar, home / "jars" / set_name)]
    if missing:
        _download(missing, home / "jars" / set_name)
    return find_jars(set_name, home, lock)


def find_jars(set_name: str, home: Path, lock: Path = LOCK) -> list[Path]:
    """Return the jars of a set below `home`, without using the network.

    Raises SetupFailed if one is missing.
    """
    folder, jars = home / "jars" / set_name, locked_jars(set_name, lock)
    missing = [jar.file_name for jar in jars if not _is_present(jar, folder)]
    if missing:
        what = f"{len(missing)} of {len(jars)} {set_name} jars are missing in {folder} ({missing[0]} …)"
        raise SetupFailed(what, "Run `make setup`, which downloads them.")
    return [folder / jar.file_name for jar in jars]


def locked_jars(set_name: str, lock: Path = LOCK) -> list[LockedJar]:
    """Return the jars that a lock lists for a set, in its order.

    Raises SetupFailed if there is no such set.
    """
    lines = [line.split() for line in lock.read_text().splitlines() if not line.startswith("#")]
    jars = [_parse(line) for line in lines if line and line[0] == set_name]
    if not jars:
        raise SetupFailed(f"No set of jars is named {set_name!r}", f"{lock} lists the sets.")
    return jars


def verify(jar: LockedJar, path: Path) -> None:
    """Raise SetupFailed if the file at `path` does not have the checksum of the lock."""
    actual = hashlib.sha256(path.read_bytes()).hexdigest()
    if actual != jar.sha256:
        what = f"{jar.file_name} has checksum {actual[:12]}…, but {jar.sha256[:12]}… is locked"
        raise SetupFailed(what, "The download was cut short or tampered with. Run the command again.")


def _parse(fields: list[str]) -> LockedJar:
    _, coordinates, checksum, size = fields
    organisation, artifact, version, *classifier = coordinates.split(":")
    return LockedJar(
        organisation, artifact, version, checksum.removeprefix("sha256:"), int(size), *classifier
    )


def _is_present(jar: LockedJar, folder: Path) -> bool:
    """Return whether a jar is in a folder, by its size only.

    A file is moved into the folder after its checksum was verified, so hashing it at each start is not
    needed.
    """
    path = folder / jar.file_name
    return path.is_file() and path.stat().st_size == jar.size_bytes


def _download(jars: list[LockedJar], folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        # The temporary folder is on the same file system, so the moves are atomic, and each download has its
        # own.
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
    # PKIX: the JVM does not trust the server's certificate. Try again with the authorities that Python
    # trusts.
    if output and "PKIX" in output and write_truststore(store):
        output = _run_ivy(scratch, truststore_options(store))
    if output:
        what = f"Downloading {len(jars)} jars failed: {_reason(output)}"
        raise SetupFailed(what, "Check the network, then run the command again.")


def _run_ivy(scratch: Path, jvm_options: list[str]) -> str:
    """Run Ivy. Returns its output if it failed, otherwise an empty text."""
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
        f"<dependency org={quoteattr(organisation)} name={quoteattr(artifact)}"
        f' rev={quoteattr(version)} transitive="false" conf="default->default">'
        f"{''.join(map(_ivy_artifact, same))}</dependency>"
        for (organisation, artifact, version), same in groupby(jars, _module)
    )
    return (
        '<ivy-module version="2.0" xmlns:m="http://ant.apache.org/ivy/maven">'
        '<info organisation="tidegate" module="jars"/><configurations>'
        f'<conf name="default"/></configurations><dependencies>{dependencies}</dependencies></ivy-module>'
    )


def _module(jar: LockedJar) -> tuple[str, str, str]:
    return jar.organisation, jar.artifact, jar.version


def _ivy_artifact(jar: LockedJar) -> str:
    classifier = f" m:classifier={quoteattr(jar.classifier)}" if jar.classifier else ""
    return f'<artifact name={quoteattr(jar.artifact)} type="jar" ext="jar"{classifier}/>'


def _proxy_options() -> list[str]:
    """Return the proxy of HTTPS_PROXY as JVM options: a JVM does not read that variable, pip and
    urllib do.
    """
    proxy = urlsplit(getproxies().get("https", ""))
    options = [f"-Dhttps.proxyHost={proxy.hostname}"] if proxy.hostname else []
    return options + ([f"-Dhttps.proxyPort={proxy.port}"] if proxy.hostname and proxy.port else [])


def _reason(output: str) -> str:
    """Return the most useful line of Ivy's long report; the marks are in order of usefulness."""
    lines = [line.strip(": \t") for line in output.splitlines() if line.strip(": \t")]
    for mark in ("No space left", "HttpClientHandler", "not found", "FAILED", "Exception", "rror"):
        if marked := [line for line in lines if mark in line]:
            return marked[0].split(" url=")[0].removeprefix("HttpClientHandler: ")
    return lines[-1] if lines else "no output"


if __name__ == "__main__":
    try:
        ensure_jars(BROKER, Path(sys.argv[1]))
    except TidegateError as error:
        sys.exit(str(error))
