"""The engines of the story (`benches/story.py`): each loads a table, upserts into it, and reads it.

Some run in an environment of their own, which has neither this package nor the other engines. So each imports what it
needs where it needs it.
"""

from __future__ import annotations

import atexit
import os
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa

BUCKETS = 4
SCHEMA = pa.schema(
    [
        ("id", pa.string()),
        *((f"n{i}", pa.int64()) for i in range(4)),
        *((f"x{i}", pa.float64()) for i in range(3)),
        ("city", pa.string()),
        ("note", pa.string()),
    ]
)


class Ours:
    name = "crdt_mor"

    @staticmethod
    def load(path: str, data: pa.Table) -> None:
        import crdt_mor as mor

        table = mor.Table.create(path, SCHEMA, key="id", buckets=BUCKETS)
        table.set_properties({"crdt_mor.maintain": "off"})
        table.append(data)
        table.maintenance.compact()

    @staticmethod
    def writer(path: str) -> Any:
        import crdt_mor as mor

        return mor.Table(path).upsert

    @staticmethod
    def read(path: str) -> int:
        import crdt_mor as mor

        return mor.Table(path).scan().to_polars().height


class Delta:
    name = "delta-rs"

    @staticmethod
    def load(path: str, data: pa.Table) -> None:
        from deltalake import write_deltalake

        write_deltalake(path, data)

    @staticmethod
    def writer(path: str) -> Any:
        from deltalake import DeltaTable

        def upsert(data: pa.Table) -> None:
            merger = DeltaTable(path).merge(data, "t.id = s.id", source_alias="s", target_alias="t")
            merger.when_matched_update_all().when_not_matched_insert_all().execute()

        return upsert

    @staticmethod
    def read(path: str) -> int:
        from deltalake import DeltaTable

        return int(pl.scan_parquet(DeltaTable(path).file_uris()).collect().height)


class Lance:
    name = "Lance"

    @staticmethod
    def load(path: str, data: pa.Table) -> None:
        import lance

        lance.write_dataset(data, path)

    @staticmethod
    def writer(path: str) -> Any:
        import lance

        def upsert(data: pa.Table) -> None:
            merge = lance.dataset(path).merge_insert("id").when_matched_update_all().when_not_matched_insert_all()
            merge.execute(data)

        return upsert

    @staticmethod
    def read(path: str) -> int:
        import lance

        return int(lance.dataset(path).to_table().num_rows)


class DuckLake:
    """Data in Parquet files, the catalog in a PostgreSQL of its own beside them, which its first load starts."""

    name = "DuckLake"
    packages = ("duckdb==1.5.5", "duckdb-extensions", "duckdb-extension-ducklake", "duckdb-extension-postgres-scanner")

    @staticmethod
    def load(path: str, data: pa.Table) -> None:
        server = Path(path).parent / "postgresql"
        if not server.exists():
            DuckLake._serve(server)
        database = Path(path).name.lower()
        subprocess.run([programs() / "createdb", "-h", server, "-U", "story", database], check=True)
        lake = DuckLake._open(path)
        lake.register("batch", data)
        lake.execute("CREATE TABLE lake.t AS SELECT * FROM batch")

    @staticmethod
    def writer(path: str) -> Any:
        lake = DuckLake._open(path)

        def upsert(data: pa.Table) -> None:
            lake.register("batch", data)
            lake.execute(
                "MERGE INTO lake.t USING batch ON (lake.t.id = batch.id) "
                "WHEN MATCHED THEN UPDATE WHEN NOT MATCHED THEN INSERT"
            )

        return upsert

    @staticmethod
    def read(path: str) -> int:
        return int(DuckLake._open(path).sql("SELECT * FROM lake.t").to_arrow_table().num_rows)

    @staticmethod
    def _open(path: str) -> Any:
        import duckdb
        from duckdb_extensions import import_extension

        connection = duckdb.connect()
        for extension in ("ducklake", "postgres_scanner"):
            import_extension(extension, con=connection)
            connection.execute(f"LOAD {extension}")
        place = f"dbname={Path(path).name.lower()} host={Path(path).parent / 'postgresql'} user=story"
        connection.execute(f"ATTACH 'ducklake:postgres:{place}' AS lake (DATA_PATH '{path}/')")
        connection.execute("SET ducklake_max_retry_count = 100")
        return connection

    @staticmethod
    def _serve(folder: Path) -> None:
        """Start a server that listens at a socket in a folder, and ends with this process."""
        data, user = folder / "data", {"user": "postgres", "cwd": "/"} if os.getuid() == 0 else {}
        folder.mkdir()
        for one in (folder, folder.parent):
            one.chmod(0o777)  # PostgreSQL does not run as root
        command = [programs() / "initdb", "-D", data, "-A", "trust", "-U", "story"]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL, **user)  # type: ignore[call-overload]
        with (folder / "log").open("w") as log:
            command = [programs() / "postgres", "-D", data, "-k", folder, "-c", "listen_addresses="]
            server = subprocess.Popen(command, stdout=log, stderr=log, **user)  # type: ignore[call-overload]
        atexit.register(server.wait)
        atexit.register(server.send_signal, signal.SIGINT)
        while subprocess.run([programs() / "pg_isready", "-q", "-h", folder], check=False).returncode:
            if server.poll() is not None:
                raise SystemExit(f"PostgreSQL did not start: {(folder / 'log').read_text()}")
            time.sleep(0.05)


def programs() -> Path:
    """Where the programs of PostgreSQL are; Debian leaves them out of the path."""
    folders = [*map(Path, os.environ["PATH"].split(os.pathsep)), *Path("/usr/lib/postgresql").glob("*/bin")]
    needed = ("initdb", "postgres", "pg_isready", "createdb")
    found = next((folder for folder in folders if all((folder / name).exists() for name in needed)), None)
    if found is None:
        raise ImportError("there is no PostgreSQL here", name="postgresql")
    return found


class Paimon:
    """A table with a primary key: upserts go to files that a read merges."""

    name = "pypaimon"
    packages = ("pypaimon==2.1.0",)

    @staticmethod
    def load(path: str, data: pa.Table) -> None:
        from pypaimon import CatalogFactory, Schema

        key = pa.field("id", pa.string(), nullable=False)
        schema = Schema.from_pyarrow_schema(SCHEMA.set(0, key), primary_keys=["id"], options={"bucket": str(BUCKETS)})
        catalog = CatalogFactory.create({"warehouse": path})
        catalog.create_database("d", True)
        catalog.create_table("d.t", schema, False)
        Paimon.writer(path)(data)

    @staticmethod
    def writer(path: str) -> Any:
        from pypaimon import CatalogFactory

        table = CatalogFactory.create({"warehouse": path}).get_table("d.t")
        schema = SCHEMA.set(0, pa.field("id", pa.string(), nullable=False))

        def upsert(data: pa.Table) -> None:
            builder = table.new_batch_write_builder()
            write, commit = builder.new_write(), builder.new_commit()
            write.write_arrow(data.cast(schema))
            commit.commit(write.prepare_commit())
            write.close()
            commit.close()

        return upsert

    @staticmethod
    def read(path: str) -> int:
        from pypaimon import CatalogFactory

        builder = CatalogFactory.create({"warehouse": path}).get_table("d.t").new_read_builder()
        return int(builder.new_read().to_arrow(builder.new_scan().plan().splits()).num_rows)


ENGINES: dict[str, Any] = {engine.name: engine for engine in (Ours, Delta, Lance, DuckLake, Paimon)}
ELSEWHERE = {engine.name: engine.packages for engine in (DuckLake, Paimon)}
"""Engines that run in an environment of their own, and what is installed there beside polars and pyarrow."""
