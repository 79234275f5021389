"""The engines that `benches/combining.py` measures for real: how each makes, writes and reads a table in a bucket.

A writer does what the documentation of its engine says for many writers, with the engine's own retries as they come,
and raises what its user would get. Engines that upsert find out which keys are there; those that append do not.
"""

from __future__ import annotations

import logging
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import obstore
import pyarrow as pa

import crdt_mor as mor
from benches import stores
from benches.bucket import BUCKET, options, put_if_absent, store

Write = Callable[[pa.Table], object]


class Bare:
    """No table: one conditional put for each write, which is the least that any engine can do in a bucket."""

    name = "put-if-absent alone"
    upserts = False

    @classmethod
    def create(cls, uri: str, port: int) -> None: ...

    @classmethod
    def writer(cls, uri: str, port: int) -> Write:
        client, folder = store(port), uri.removeprefix(f"s3://{BUCKET}/")
        return lambda rows: put_if_absent(client, f"{folder}/{rows['id'][0]}")

    @classmethod
    def rows(cls, uri: str, port: int) -> pa.Table:
        folder = uri.removeprefix(f"s3://{BUCKET}/") + "/"
        pages = obstore.list(store(port), folder)
        return pa.table({"id": [one["path"].removeprefix(folder) for page in pages for one in page]})


class Ours(stores.Ours):
    upserts = True

    @classmethod
    def rows(cls, uri: str, port: int) -> pa.Table:
        return mor.Table(uri, storage_options=cls.options(port)).scan().to_arrow()


class DeltaAppends(stores.Delta):
    """Its retries: up to 15 of a commit that conflicts with no other."""

    name = "delta-rs, append"
    upserts = False

    @classmethod
    def rows(cls, uri: str, port: int) -> pa.Table:
        return pa.table(cls.open(uri, port).to_pyarrow_table())


class DeltaMerges(DeltaAppends):
    """A merge of a table that is loaded for it, as a merge that met a conflict has to begin with the newest one."""

    name = "delta-rs, merge"
    upserts = True

    @classmethod
    def writer(cls, uri: str, port: int) -> Write:
        def upsert(rows: pa.Table) -> None:
            merger = cls.open(uri, port).merge(rows, "t.id = s.id", source_alias="s", target_alias="t")
            merger.when_matched_update_all().when_not_matched_insert_all().execute()

        return upsert


class LanceAppends(stores.Lance):
    """Its retries: up to 20 of a commit."""

    name = "Lance, append"
    upserts = False

    @classmethod
    def rows(cls, uri: str, port: int) -> pa.Table:
        return cls.open(uri, port).to_table()


class LanceMerges(LanceAppends):
    """A table that names its primary key, without which it does not notice that another merge inserted the same key.

    Its retries: up to 10 of a merge, within 30 s.
    """

    name = "Lance, merge_insert"
    upserts = True

    @classmethod
    def create(cls, uri: str, port: int) -> None:
        import lance

        key = pa.field("id", pa.string(), False, {"lance-schema:unenforced-primary-key": "true"})
        lance.write_dataset(stores.ROW.set(0, key).empty_table(), uri, storage_options=cls.options(port))

    @classmethod
    def writer(cls, uri: str, port: int) -> Write:
        def upsert(rows: pa.Table) -> None:
            merge = cls.open(uri, port).merge_insert("id").when_matched_update_all().when_not_matched_insert_all()
            merge.execute(rows.cast(stores.ROW.set(0, pa.field("id", pa.string(), False))))

        return upsert


class IcebergAppends:
    """A catalog in SQLite on the local disk, which no delay is in front of. Its retries: up to 4 of a commit."""

    name = "pyiceberg, append"
    upserts = False
    namespace = "bench"

    @classmethod
    def create(cls, uri: str, port: int) -> None:
        catalog = cls._catalog(uri, port)
        catalog.create_namespace_if_not_exists(cls.namespace)
        catalog.create_table(cls._identifier(uri), stores.ROW, location=uri)

    @classmethod
    def writer(cls, uri: str, port: int) -> Write:
        catalog = cls._catalog(uri, port)
        return lambda rows: catalog.load_table(cls._identifier(uri)).append(rows)

    @classmethod
    def rows(cls, uri: str, port: int) -> pa.Table:
        return cls._catalog(uri, port).load_table(cls._identifier(uri)).scan().to_arrow()

    @classmethod
    def _identifier(cls, uri: str) -> str:
        return f"{cls.namespace}.{uri.rpartition('/')[2]}"

    @staticmethod
    def _catalog(uri: str, port: int) -> Any:
        """The catalog of one table, which all processes share that write to it."""
        from pyiceberg.catalog.sql import SqlCatalog

        logging.getLogger("pyiceberg").setLevel(logging.ERROR)  # it warns of each retry
        given = options(port)
        return SqlCatalog("bench", uri=f"sqlite:///{catalog_file(uri, port)}", **{
            "s3.endpoint": given["aws_endpoint_url"], "s3.region": given["aws_region"],
            "s3.access-key-id": given["aws_access_key_id"], "s3.secret-access-key": given["aws_secret_access_key"],
        })  # fmt: skip


class IcebergUpserts(IcebergAppends):
    name = "pyiceberg, upsert"
    upserts = True

    @classmethod
    def writer(cls, uri: str, port: int) -> Write:
        catalog = cls._catalog(uri, port)
        return lambda rows: catalog.load_table(cls._identifier(uri)).upsert(rows, join_cols=["id"])


def catalog_file(uri: str, port: int) -> Path:
    return Path(tempfile.gettempdir(), f"bench-catalog-{port}-{uri.rpartition('/')[2]}.sqlite")


def remove_catalogs(port: int) -> None:
    """Remove the catalogs of all tables that were reached by a port."""
    for file in Path(tempfile.gettempdir()).glob(f"bench-catalog-{port}-*.sqlite"):
        file.unlink()


ENGINES: dict[str, Any] = {
    engine.name: engine
    for engine in (Bare, Ours, DeltaMerges, LanceMerges, IcebergUpserts, DeltaAppends, LanceAppends, IcebergAppends)
}
PACKAGES = {"delta-rs": "deltalake", "Lance": "lance", "pyiceberg": "pyiceberg"}
