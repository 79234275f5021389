"""Each engine's statements that delete or write, by name, on a mirrored table: `keeping.py` runs them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from tests.engines import spark, trino
from tests.engines.catalogs import attached, catalog


@dataclass(frozen=True)
class Target:
    """A mirrored table: its address, and its name in the catalog."""

    uri: str
    name: str


Statement = Callable[[Target], object]


@dataclass(frozen=True)
class Keeper:
    """An engine with its statements by name, all on mirrors of one format.

    Attributes:
        server: The catalog that knows the tables; "" for an engine that opens folders.
        replaced: Statements that write, or spoil the mirror: the next `mirror` or `register` says that it replaced it.
        anew: Statements after which the entry must be dropped before it is registered again.
    """

    name: str
    mirror: Literal["delta", "iceberg"]
    package: str
    statements: Mapping[str, Statement]
    server: str = ""
    replaced: frozenset[str] = frozenset()
    anew: frozenset[str] = frozenset()


PURGED = frozenset({"purge"})
"""A catalog that purges an entry deletes the manifests of the mirror, as Trino's drop does."""


def by_pyiceberg(server: str, replaced: frozenset[str] = frozenset()) -> Keeper:
    def entry(target: Target) -> Any:
        return catalog(server).load_table(target.name)

    statements: dict[str, Statement] = {
        "drop": lambda target: catalog(server).drop_table(target.name),
        "purge": lambda target: catalog(server).purge_table(target.name),
        "delete": lambda target: entry(target).delete("id < 20"),
        "expire": lambda target: entry(target).maintenance.expire_snapshots().commit(),
    }
    return Keeper(f"pyiceberg-{server}-keeps", "iceberg", "pyiceberg", statements, server, replaced | {"delete"})


def texts(run: Callable[[str], object], name: str, **statements: str) -> dict[str, Statement]:
    """Statements of SQL. name: the table's, with `{0.name}` or `{0.uri}` of its target."""

    def statement(text: str) -> Statement:
        return lambda target: run(text.format(name.format(target)))

    return {title.replace("_", " "): statement(text) for title, text in statements.items()}


WRITES = {
    "delete": "delete from {} where id < 20",
    "insert": "insert into {} values (1000, 'p0', 1)",
    "update": "update {} set n = 5 where id < 20",
}
WRITTEN = frozenset(WRITES)


def delta_table(target: Target) -> Any:
    from deltalake import DeltaTable

    return DeltaTable(target.uri)


def vacuumed(target: Target, *, full: bool) -> object:
    return delta_table(target).vacuum(0, dry_run=False, enforce_retention_duration=False, full=full)


DELTA_RS: dict[str, Statement] = {
    "vacuum": lambda target: vacuumed(target, full=False),
    "full vacuum": lambda target: vacuumed(target, full=True),
    "delete": lambda target: delta_table(target).delete("id < 20"),
    "optimize": lambda target: delta_table(target).optimize.compact(),
    "restore": lambda target: delta_table(target).restore(0),
}


def by_trino(server: str, anew: frozenset[str] = frozenset()) -> Keeper:
    statements = texts(
        trino.run,
        server + ".{0.name}",
        drop="drop table {}",
        truncate="truncate table {}",
        optimize="alter table {} execute optimize",
        expire_snapshots="alter table {} execute expire_snapshots(retention_threshold => '0s')",
        remove_orphan_files="alter table {} execute remove_orphan_files(retention_threshold => '0s')",
        **WRITES,
    )
    replaced = WRITTEN | {"drop", "truncate", "optimize"}
    return Keeper(f"trino-{server}-keeps", "iceberg", "trino", statements, server, replaced, anew)


def trino_delta(text: str) -> Statement:
    return lambda target: trino.run(text.format(trino.registered(target.uri)))


def trino_vacuum(target: Target) -> object:
    schema, name = trino.registered(target.uri).removeprefix("delta.").replace('"', "").split(".")
    vacuum = f"call delta.system.vacuum('{schema}', '{name}', '0s')"
    return trino.run(vacuum)


TRINO_DELTA: dict[str, Statement] = {
    "drop": trino_delta("drop table {}"),
    "vacuum": trino_vacuum,
    "optimize": trino_delta("alter table {} execute optimize"),
    **{title: trino_delta(text) for title, text in WRITES.items()},
}


def sql(text: str) -> object:
    return spark.session().sql(text).collect()


def appended(target: Target) -> None:
    """A write to the folder, without a catalog."""
    row = spark.session().createDataFrame([(1000, "p0", 1)], "id long, part string, n long")
    row.write.format("iceberg").mode("append").save(f"file://{target.uri}")


SPARK_ICEBERG = texts(
    sql,
    "rest.{0.name}",
    drop="drop table {}",
    purge="drop table {} purge",
    truncate="truncate table {}",
    expire_snapshots="call rest.system.expire_snapshots(table => '{}', older_than => timestamp '2100-01-01')",
    remove_orphan_files="call rest.system.remove_orphan_files(table => '{}', dry_run => true)",
    rewrite_data_files="call rest.system.rewrite_data_files(table => '{}', options => map('rewrite-all', 'true'))",
    rewrite_manifests="call rest.system.rewrite_manifests('{}')",
    **WRITES,
)
SPARK_WRITTEN = WRITTEN | {"truncate", "rewrite data files", "rewrite manifests"}
SPARK_DELTA = texts(
    sql,
    "delta.`{0.uri}`",
    vacuum="vacuum {} retain 0 hours",
    vacuum_lite="vacuum {} lite retain 0 hours",
    optimize="optimize {}",
    restore="restore {} to version as of 0",
    drop="drop table {}",
    **WRITES,
)

KEEPERS = (
    by_pyiceberg("rest", PURGED),
    by_pyiceberg("hive"),
    by_pyiceberg("nessie"),
    Keeper(
        "duckdb-keeps",
        "iceberg",
        "duckdb",
        texts(lambda text: attached().sql(text), "rest.{0.name}", drop="drop table {}", **WRITES),
        "rest",
        WRITTEN,
    ),
    Keeper("delta-rs-keeps", "delta", "deltalake", DELTA_RS),
    by_trino("rest", frozenset({"remove orphan files"})),
    by_trino("hive"),
    Keeper("trino-delta-keeps", "delta", "trino", TRINO_DELTA),
    Keeper("spark-iceberg-keeps", "iceberg", "pyspark", SPARK_ICEBERG, "rest", SPARK_WRITTEN),
    Keeper("spark-folder-keeps", "iceberg", "pyspark", {"append": appended}, replaced=frozenset({"append"})),
    Keeper("spark-delta-keeps", "delta", "pyspark", SPARK_DELTA),
)
