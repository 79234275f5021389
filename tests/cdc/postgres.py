"""A PostgreSQL of its own for tests: a new cluster in a temporary folder, on a Unix socket, with wal2json.

Tests are skipped where PostgreSQL, wal2json or psycopg is missing; the message names the packages.
"""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

INSTALL: Final = "apt-get install postgresql-15 postgresql-15-wal2json; pip install 'psycopg[binary]'"
SETTINGS: Final = {
    "wal_level": "logical",
    "listen_addresses": "",
    "max_replication_slots": "20",
    "max_wal_senders": "20",
    "max_connections": "60",
    "fsync": "off",  # the cluster never outlives its test
}
PLUGINS: Final = "output_plugin_libraries"  # servers since 15.19 allow no other output plugins than it names


@cache
def missing() -> str | None:
    """Return a missing part of this machine, or None."""
    if find_spec("psycopg") is None:
        return f"psycopg is not installed: {INSTALL}"
    if (found := binaries()) is None:
        return f"PostgreSQL is not installed: {INSTALL}"
    folder = subprocess.run([found / "pg_config", "--pkglibdir"], capture_output=True, text=True, check=True).stdout
    return None if Path(folder.strip(), "wal2json.so").exists() else f"wal2json is not installed: {INSTALL}"


def binaries() -> Path | None:
    """Return the folder of the newest PostgreSQL: Debian's, or that of `initdb` on the path."""
    debian = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"), key=lambda path: float(path.parts[4]))
    found = str(debian[-1]) if debian else shutil.which("initdb")
    return None if found is None else Path(found).resolve().parent


@dataclass(frozen=True)
class Cluster:
    """A running server. folder: of the socket."""

    folder: Path

    @property
    def dsn(self) -> str:
        return f"host={self.folder} user=postgres dbname=postgres"

    @contextmanager
    def connected(self) -> Iterator[Any]:
        """Give a cursor whose statements commit on their own."""
        import psycopg

        with closing(psycopg.connect(self.dsn, autocommit=True)) as connection:
            yield connection.cursor()

    def start(self, program: str, *arguments: str) -> subprocess.Popen[bytes]:
        """Start a client program of PostgreSQL on the database."""
        found = binaries()
        assert found is not None
        command = [os.fspath(found / program), *arguments, "-h", os.fspath(self.folder), "-U", "postgres", "postgres"]
        return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def program(self, program: str, *arguments: str) -> None:
        process = self.start(program, *arguments)
        assert process.wait() == 0, f"{program} failed"

    def run(self, *statements: str) -> list[tuple[Any, ...]]:
        """Run statements, each in a transaction of its own; return the rows of the last."""
        with self.connected() as cursor:
            for statement in statements:
                cursor.execute(statement)
            return cursor.fetchall() if cursor.description else []


@contextmanager
def cluster() -> Iterator[Cluster]:
    """Start a new cluster; it ends and is deleted with the block."""
    found = binaries()
    assert found is not None
    folder = Path(tempfile.mkdtemp(prefix="pg-"))
    user = "postgres" if os.geteuid() == 0 else None  # the server refuses to run as root
    if user is not None:
        os.chown(folder, pwd.getpwnam(user).pw_uid, -1)
    data = folder / "data"
    known = subprocess.run([found / "postgres", "--describe-config"], capture_output=True, text=True, check=True).stdout
    settings = SETTINGS | ({PLUGINS: "wal2json"} if PLUGINS in known else {})
    options = " ".join(f"-c {name}='{value}'" for name, value in settings.items())

    def call(program: str, *arguments: str | Path) -> None:
        command = [str(part) for part in (found / program, *arguments)]
        with open(os.devnull, "w") as nowhere:
            subprocess.run(command, cwd="/", user=user, stdout=nowhere, stderr=nowhere, check=True)

    try:
        call("initdb", "-D", data, "-A", "trust", "-U", "postgres", "-E", "UTF8", "--no-locale", "-N")
        call("pg_ctl", "-D", data, "-l", folder / "log", "-o", f"-k {folder} {options}", "-w", "start")
        try:
            yield Cluster(folder)
        finally:
            call("pg_ctl", "-D", data, "-m", "immediate", "-w", "stop")
    finally:
        shutil.rmtree(folder, ignore_errors=True)
