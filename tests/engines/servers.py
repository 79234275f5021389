"""Servers of catalogs and engines, from Maven Central: each is a process that ends with its `with` block.

    rest     Iceberg's RESTCatalogServer, on SQLite    Java 17
    hive     Hive's metastore, on Derby                Java 17
    nessie   Nessie, in memory                         Java 21 or newer
    trino    Trino, over the others                    Java 24 or newer

Maven keeps the jars in its local repository, and the list of them is kept below `.venvs`.
"""

from __future__ import annotations

import os
import re
import shutil
import socket
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from tests.environments import ROOT
from tests.waiting import wait_for

KEPT = ROOT / ".venvs" / "servers"
REPOSITORY = Path.home() / ".m2" / "repository"

LIBRARIES = {
    "rest": (
        "org.apache.iceberg:iceberg-core:1.10.1",
        "org.apache.iceberg:iceberg-core:1.10.1:tests",
        "org.apache.iceberg:iceberg-open-api:1.10.1:test-fixtures",
        "org.eclipse.jetty:jetty-servlet:11.0.25",
        "org.xerial:sqlite-jdbc:3.50.3.0",
        "org.apache.hadoop:hadoop-client-api:3.4.1",
        "org.apache.hadoop:hadoop-client-runtime:3.4.1",
        "org.slf4j:slf4j-simple:2.0.17",
    ),
}
"""Jars with their dependencies, as group:artifact:version[:classifier]."""

POM = """<project xmlns="http://maven.apache.org/POM/4.0.0">
<modelVersion>4.0.0</modelVersion><groupId>tests</groupId><artifactId>servers</artifactId><version>1</version>
<dependencies>
{}
</dependencies></project>
"""


def missing(lowest: int, highest: int = 99) -> str:
    """What this machine lacks for a server or Spark, or ""."""
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


def classpath(name: str) -> str:
    """The class path of a server; Maven fetches missing jars."""
    folder = KEPT / name
    pom, listed = folder / "pom.xml", folder / "classpath"
    text = POM.format("\n".join(dependency(each) for each in LIBRARIES[name]))
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
    return listed.read_text()


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
    return port


def answers(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), timeout=1).close()
    except OSError:
        return False
    return True


@contextmanager
def process(command: Sequence[str], port: int, folder: Path, settings: Mapping[str, str]) -> Iterator[None]:
    """Run a server in a folder until the end of the block; what it prints is in `log`."""
    folder.mkdir(parents=True, exist_ok=True)
    log = folder / "log"
    with log.open("wb") as out:
        started = subprocess.Popen(
            command, cwd=folder, stdin=subprocess.DEVNULL, stdout=out, stderr=out, env={**os.environ, **settings}
        )

    def is_up() -> bool:
        assert started.poll() is None, f"{command[0]} ended: {log.read_text()[-2000:]}"
        return answers(port)

    try:
        wait_for(f"server at {port}", is_up, where=lambda: log.read_text()[-2000:])
        yield
    finally:
        started.terminate()
        try:
            started.wait(20)
        except subprocess.TimeoutExpired:
            started.kill()
            started.wait()


@contextmanager
def rest(folder: Path) -> Iterator[str]:
    """Iceberg's REST catalog; its address."""
    port = free_port()
    settings = {
        "CATALOG_URI": f"jdbc:sqlite:{folder}/catalog.db",
        "CATALOG_WAREHOUSE": f"file://{folder}/warehouse",
        "CATALOG_CATALOG__IMPL": "org.apache.iceberg.jdbc.JdbcCatalog",
        "CATALOG_JDBC_SCHEMA__VERSION": "V1",
        "CATALOG_REST_PORT": str(port),
    }
    command = [str(java(17, 21)), "-Xmx256m", "-cp", classpath("rest"), "org.apache.iceberg.rest.RESTCatalogServer"]
    with process(command, port, folder, settings):
        yield f"http://127.0.0.1:{port}"


@dataclass(frozen=True)
class Server:
    """Starts a server in a folder and gives its address; it needs a Java of a release between two."""

    start: Callable[[Path], AbstractContextManager[str]]
    lowest: int
    highest: int = 99
    is_catalog: bool = False

    def missing(self) -> str:
        """What this machine lacks for the server, or ""."""
        return missing(self.lowest, self.highest)


SERVERS = {
    "rest": Server(rest, 17, 21, is_catalog=True),
}
