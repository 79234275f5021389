"""Programs on the Java of this machine, from Maven Central, for `servers.py` and Spark."""

from __future__ import annotations

import os
import re
import shutil
import socket
import subprocess
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path

from tests.environments import ROOT
from tests.waiting import wait_for

KEPT = ROOT / ".venvs" / "servers"
REPOSITORY = Path.home() / ".m2" / "repository"

POM = """<project xmlns="http://maven.apache.org/POM/4.0.0">
<modelVersion>4.0.0</modelVersion><groupId>tests</groupId><artifactId>servers</artifactId><version>1</version>
<dependencies>
{}
</dependencies></project>
"""


def missing(lowest: int, highest: int = 99) -> str:
    """The name of a missing program of a server or Spark, or ""."""
    if not shutil.which("mvn"):
        return "no Maven on this machine"
    return "" if java(lowest, highest) else f"no Java from {lowest} to {highest} on this machine"


@cache
def java(lowest: int, highest: int = 99) -> Path | None:
    """A Java of a release between these, on the path or where Debian installs it."""
    on_path = shutil.which("java")
    for found in (*([Path(on_path)] if on_path else []), *sorted(Path("/usr/lib/jvm").glob("*/bin/java"))):
        said = subprocess.run([str(found), "-version"], capture_output=True, text=True, check=False).stderr
        release = re.search(r'version "(\d+)', said)
        if release and lowest <= int(release[1]) <= highest:
            return found
    return None


def dependency(coordinates: str) -> str:
    names = ("groupId", "artifactId", "version", "classifier")
    parts = (f"<{name}>{part}</{name}>" for name, part in zip(names, coordinates.split(":"), strict=False))
    return f"<dependency>{''.join(parts)}</dependency>"


def classpath(name: str, libraries: Sequence[str]) -> str:
    """The class path of a server: jars with their dependencies, as group:artifact:version[:classifier]."""
    folder = KEPT / name
    pom, listed = folder / "pom.xml", folder / "classpath"
    text = POM.format("\n".join(dependency(each) for each in libraries))
    if not (
        pom.exists()
        and pom.read_text() == text
        and listed.exists()
        and all(Path(jar).exists() for jar in listed.read_text().split(":"))
    ):
        folder.mkdir(parents=True, exist_ok=True)
        pom.write_text(text)
        goal = ["dependency:build-classpath", "-DincludeScope=runtime", f"-Dmdep.outputFile={listed}"]
        subprocess.run(["mvn", "-q", "-B", "-f", str(pom), *goal], check=True, stdout=subprocess.DEVNULL)
    # Two bindings of the log are too many for Hive.
    return ":".join(jar for jar in listed.read_text().split(":") if not re.search("log4j12|log4j-slf4j", jar))


def artifact(coordinates: str) -> Path:
    """A file in Maven's local repository, by group:artifact:version[:packaging[:classifier]]; Maven fetches it."""
    group, name, version, *rest = coordinates.split(":")
    packaging, *classifier = rest or ["jar"]
    file = "-".join((name, version, *classifier))
    path = REPOSITORY.joinpath(*group.split("."), name, version, f"{file}.{packaging}")
    if not path.exists():
        fetched = ["mvn", "-q", "-B", "dependency:get", "-Dtransitive=false", f"-Dartifact={coordinates}"]
        subprocess.run(fetched, check=True, stdout=subprocess.DEVNULL)
    return path


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
    return port


def answers(port: int) -> bool:
    """True if a server takes connections."""
    try:
        socket.create_connection(("127.0.0.1", port), timeout=1).close()
    except OSError:
        return False
    return True


def says(address: str, words: str) -> bool:
    """True if the page at an address contains these words."""
    try:
        with urllib.request.urlopen(address, timeout=5) as page:
            return words in page.read().decode()
    except OSError:
        return False


@contextmanager
def process(
    command: Sequence[str], folder: Path, is_ready: Callable[[], bool], settings: dict[str, str] | None = None
) -> Iterator[None]:
    """Run a server in a folder until the end of the block; its output is in `log`."""
    folder.mkdir(parents=True, exist_ok=True)
    log = folder / "log"
    with log.open("wb") as out:
        started = subprocess.Popen(
            command,
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=out,
            env=os.environ | (settings or {}),
        )

    def is_up() -> bool:
        assert started.poll() is None, f"{command[0]} ended: {log.read_text()[-2000:]}"
        return is_ready()

    try:
        wait_for("server", is_up, patience_s=600, every_s=0.1, where=lambda: log.read_text()[-2000:])
        yield
    finally:
        started.terminate()
        try:
            started.wait(20)
        except subprocess.TimeoutExpired:
            started.kill()
            started.wait()
