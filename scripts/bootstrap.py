"""Make this checkout ready to run: `python3 scripts/bootstrap.py [--dev]`. Standard library only.

Creates `.venv` from the lock files, finds Java or installs one, and fetches the jars of the local broker.
What is there already is left alone: then nothing is printed, no network is needed, and it takes a moment.
The syntax is kept to what an old Python can read, so that it can say that it is too old.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import importlib.util
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
HOME = Path(os.environ.get("TIDEGATE_HOME") or ROOT / ".tidegate").expanduser().absolute()
LOG = HOME / "logs" / "setup.log"
DEV = ROOT / "tidegate-dev"  # the distribution with the local stack and the demo
VENV = ROOT / ".venv"
PYTHON = VENV / "bin" / "python"
INSTALLED = VENV / "tidegate-installed"
COMPILED = VENV / "tidegate-compiled"
ARCHIVED = VENV / "tidegate-archived"
LOCKS = {"runtime": ROOT / "requirements.lock", "dev": ROOT / "requirements-dev.lock"}
OLDEST, NEWEST = (3, 10), (3, 14)

DISK = r"No space left on device|os error 28|Errno 28"
HASH = r"DO NOT MATCH THE HASHES|[Hh]ash mismatch|has checksum \w+…, but"
NETWORK = (
    r"NewConnectionError|NameResolutionError|name resolution|dns error|error sending request|UnknownHost"
    r"|ConnectTimeout|ReadTimeout|Network is unreachable|Connection refused|ProxyError|No route to host"
)
# what a failed step's output says -> what happened, and what to do about it
ADVICE = {
    DISK: "the disk is full. Free about 4 GB, then run this again.",
    HASH: (
        "a download is not the file that is locked. "
        "Run this again; if that does not help, ask who runs your package index."
    ),
    NETWORK: (
        "the network or the package index cannot be reached. "
        "Only the first setup needs it: check the connection, and pip's settings for index and proxy."
    ),
}


class Failed(Exception):
    """Setup cannot go on. The text says what happened and what to do."""


def main(dev: bool) -> None:
    HOME.mkdir(parents=True, exist_ok=True)
    with (HOME / "setup.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # two at once would undo each other's work
        kind = "dev" if dev else "runtime"
        if not is_installed(kind):
            install(kind)
        compiling = start_compiling()
        provide_java()
        run("Fetching Kafka's jars", [PYTHON, "-m", "tidegate_dev.jars", HOME], quick=True)
        archive_classes()
        if compiling:
            follow("Compiling the packages, for quick starts", compiling)
            COMPILED.touch()


def is_installed(kind: str) -> bool:
    """True when the venv works and holds what the lock says."""
    with contextlib.suppress(OSError):
        return PYTHON.exists() and fingerprint(kind) in INSTALLED.read_text().split()
    return False


def fingerprint(kind: str) -> str:
    files = (ROOT / "pyproject.toml", DEV / "pyproject.toml", LOCKS[kind])
    content = (str(ROOT).encode(), *(file.read_bytes() for file in files))
    return f"{kind}:{hashlib.sha256(b''.join(content)).hexdigest()}"


def install(kind: str) -> None:
    """Install all packages, and this project in place. The stamp is written last, so that an interrupted
    installation does not count as installed.
    """
    if not (PYTHON.exists() and INSTALLED.exists()):
        make_venv()
    INSTALLED.unlink()
    COMPILED.unlink(missing_ok=True)
    install_packages(LOCKS[kind])
    in_place = ("--no-index", "--no-deps", "--no-build-isolation", "--editable", ROOT, "--editable", DEV)
    run("Installing tidegate", pip(*in_place))
    # the development set includes the other one
    INSTALLED.write_text("\n".join(fingerprint(name) for name in LOCKS if name in ("runtime", kind)))


def make_venv() -> None:
    use_fitting_python()
    if not (importlib.util.find_spec("venv") and importlib.util.find_spec("ensurepip")):
        package = "python{}.{}-venv".format(*sys.version_info)
        raise Failed(f"this Python has no venv module. On Debian or Ubuntu, `apt install {package}` adds it.")
    if VENV.exists():
        shutil.rmtree(VENV)
    run("Creating .venv", [sys.executable, "-m", "venv", VENV])
    INSTALLED.touch()


def use_fitting_python() -> None:
    """Start over in a Python that fits, when this one does not and another is installed."""
    if OLDEST <= sys.version_info[:2] <= NEWEST:
        return
    for minor in range(NEWEST[1], OLDEST[1] - 1, -1):
        other = shutil.which(f"python3.{minor}")
        if other:
            os.execv(other, [other, *sys.argv])
    raise Failed(
        "this is Python {}.{}, and tidegate needs {}.{} to {}.{}. Install one, and if it is not "
        "called python3, name it: `make PYTHON=/path/to/python …`.".format(
            *sys.version_info[:2], *OLDEST, *NEWEST
        )
    )


def install_packages(lock: Path) -> None:
    """Install with uv, which takes a third of pip's time, or with pip if uv fails."""
    locked = ("--require-hashes", "--no-deps", "-r")
    uv: list[str | Path] = [VENV / "bin" / "uv", "pip", "install", "--python", PYTHON]
    cache = VENV / "uv-cache"  # on the venv's file system, so that files are linked and not copied
    try:
        run("Getting the installer", pip(*locked, ROOT / "requirements-uv.lock"))
        run("Installing the packages", [*uv, *locked, lock], {**uv_settings(), "UV_CACHE_DIR": str(cache)})
    except Failed:
        run("Installing the packages with pip", pip(*locked, lock))
    finally:
        shutil.rmtree(cache, ignore_errors=True)


def uv_settings() -> dict[str, str]:
    """Return pip's index and certificate settings as environment variables of uv."""
    ask = [str(PYTHON), "-m", "pip", "config", "list"]
    text = subprocess.run(ask, stdout=subprocess.PIPE, text=True, check=False).stdout
    settings = dict(re.findall(r"^(?:global|install|:env:)\.(index-url|cert)='(.+)'$", text, re.MULTILINE))
    names = {"index-url": "UV_DEFAULT_INDEX", "cert": "SSL_CERT_FILE"}
    return {names[key]: value for key, value in settings.items()}


def start_compiling() -> subprocess.Popen[bytes] | None:
    """Byte-compile all packages and this one, while the downloads that come next mostly wait."""
    if COMPILED.exists():
        return None
    sources = [VENV / "lib", DEV, *(ROOT / folder for folder in ("include", "plugins", "spark_jobs"))]
    command = [str(PYTHON), "-m", "compileall", "-q", "-j", "0", *map(str, sources)]
    return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def provide_java() -> None:
    ask = [str(PYTHON), "-m", "tidegate.spark.java"]
    if subprocess.run(ask, capture_output=True, check=False).returncode == 0:
        return
    try:
        lock = ROOT / "requirements-java.lock"
        run("Installing Java", pip("--require-hashes", "--no-deps", "-r", lock))
    except Failed as error:
        raise Failed(f"{error} Or install Java 17 or 21 yourself, and set JAVA_HOME.") from error


def archive_classes() -> None:
    """Make what lets Spark start in half the time: once for each Java, also where that cannot be done, since
    nothing else depends on it."""
    ask = [str(PYTHON), "-m", "tidegate.spark.java", "archive"]
    archive = subprocess.run(ask, stdout=subprocess.PIPE, text=True, check=False).stdout
    with contextlib.suppress(OSError):
        if ARCHIVED.read_text() == archive:
            return
    try:
        run("Archiving Spark's classes, for quick starts", [PYTHON, "-m", "tidegate.spark.training"])
    except Failed as error:
        print(f"  {error}", flush=True)
    ARCHIVED.write_text(archive)


def pip(*arguments: str | Path) -> list[str | Path]:
    options = ("--quiet", "--disable-pip-version-check", "--no-input")
    return [PYTHON, "-m", "pip", "install", *options, *arguments]


def run(
    title: str, command: Sequence[str | Path], extra: Mapping[str, str] | None = None, quick: bool = False
) -> None:
    """Run one step to its end; its output goes to the log, and into the reason when it fails."""
    LOG.parent.mkdir(parents=True, exist_ok=True)
    env = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "PYTHONHOME")}
    env.update(extra or {})
    with LOG.open("ab") as log:
        start = log.tell()
        arguments = [str(part) for part in command]
        process = subprocess.Popen(arguments, stdout=log, stderr=subprocess.STDOUT, env=env)
        follow(title, process, quick)
    if process.returncode != 0:
        raise Failed(f"{title} failed: {reason(LOG.read_bytes()[start:].decode(errors='replace'))}")


def follow(title: str, process: subprocess.Popen[bytes], quick: bool = False) -> None:
    """Say what goes on until the process ends; a `quick` step is mentioned only when it takes its time."""
    started, line = time.monotonic(), Line(title)
    try:
        while process.poll() is None:
            elapsed = time.monotonic() - started
            if not quick or elapsed > 1:
                line.show(elapsed)
            time.sleep(0.05)
    except BaseException:
        process.terminate()
        process.wait()
        raise
    line.end(time.monotonic() - started, process.returncode == 0)


class Line:
    """One step on the screen: a line that counts the seconds, or, where output is kept, two plain ones."""

    def __init__(self, title: str) -> None:
        self.title = title
        self.live = sys.stdout.isatty()
        self.shown = ""

    def show(self, seconds: float) -> None:
        text = f"\r  {self.title} … {seconds:.0f} s" if self.live else f"  {self.title} …\n"
        if text != self.shown:
            print(text, end="", flush=True)
        self.shown = text

    def end(self, seconds: float, good: bool) -> None:
        if self.shown:
            result = f"{'done' if good else 'failed'} after {seconds:.0f} s"
            print(f"\r  {self.title}: {result}  " if self.live else f"  … {result}", flush=True)


def reason(output: str) -> str:
    """Return why a step failed, and what to do, judging by its output."""
    for pattern, advice in ADVICE.items():
        if re.search(pattern, output):
            return advice
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    return f"{lines[-1] if lines else 'it said nothing'} (all of it: {LOG})"


if __name__ == "__main__":
    try:
        main(dev="--dev" in sys.argv[1:])
    except Failed as error:
        sys.exit(f"error: {error}")
    except OSError as error:
        fix = "Free about 4 GB" if error.errno == errno.ENOSPC else "Check who may write there"
        sys.exit(f"error: {error.strerror}: {error.filename}. {fix}, then run this again.")
    except KeyboardInterrupt:
        sys.exit("\nInterrupted. Run it again: what was not finished is done anew.")
