"""Each engine's work, one process per job: `reading`, `registering`, `keeping` or `versions`."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from tests.engines.machine import missing
from tests.engines.servers import SERVERS


@dataclass(frozen=True)
class Job:
    """A run of a module of this folder.

    Attributes:
        argument: Of the module; by default the job's name.
        requirements: The file that its environment is made from.
        servers: The servers that run meanwhile.
    """

    name: str
    module: str = "reading"
    argument: str = ""
    requirements: str = "light"
    servers: tuple[str, ...] = ()

    def lack(self) -> str:
        """The name of a missing program of the job, or ""."""
        spark = missing(17, 21) if self.requirements == "heavy" else ""
        return spark or next((SERVERS[name].missing() for name in self.servers if SERVERS[name].missing()), "")


READERS = (
    "pyiceberg", "duckdb-iceberg", "duckdb-delta", "polars-iceberg", "polars-delta", "delta-rs", "delta-rs-pyarrow",
     "datafusion-delta", "clickhouse-iceberg", "clickhouse-delta", "daft-iceberg", "daft-delta",
)  # fmt: skip
REST = ("rest",)
HIVE = ("hive",)
NESSIE = ("nessie",)
TRINO = ("rest", "hive", "trino")

LIGHT = (
    *(Job(name) for name in READERS),
    Job("pyiceberg-rest", servers=REST),
    Job("duckdb-rest", servers=REST),
    Job("rest-registers", "registering", "rest", servers=REST),
    Job("pyiceberg-rest-keeps", "keeping", servers=REST),
    Job("duckdb-keeps", "keeping", servers=REST),
    Job("delta-rs-keeps", "keeping"),
    Job("versions-few", "versions"),
)
VERSIONS = (Job("versions-light", "versions"), Job("versions-spark", "versions", requirements="heavy"))
HEAVY = (
    Job("spark-iceberg", requirements="heavy"),
    Job("spark-delta", requirements="heavy"),
    Job("spark-iceberg-keeps", "keeping", requirements="heavy", servers=REST),
    Job("spark-folder-keeps", "keeping", requirements="heavy"),
    Job("spark-delta-keeps", "keeping", requirements="heavy"),
    Job("pyiceberg-hive", requirements="heavy", servers=HIVE),
    Job("hive-registers", "registering", "hive", requirements="heavy", servers=HIVE),
    Job("pyiceberg-hive-keeps", "keeping", requirements="heavy", servers=HIVE),
    Job("nessie-registers", "registering", "nessie", requirements="heavy", servers=NESSIE),
    Job("pyiceberg-nessie-keeps", "keeping", requirements="heavy", servers=NESSIE),
    Job("trino-rest", requirements="heavy", servers=TRINO),
    Job("trino-hive", requirements="heavy", servers=TRINO),
    Job("trino-delta", requirements="heavy", servers=TRINO),
    Job("trino-rest-keeps", "keeping", requirements="heavy", servers=TRINO),
    Job("trino-hive-keeps", "keeping", requirements="heavy", servers=TRINO),
    Job("trino-delta-keeps", "keeping", requirements="heavy", servers=TRINO),
)
JOBS = {job.name: job for job in (*LIGHT, *HEAVY, *VERSIONS)}
GROUPS: dict[str, Iterable[Job]] = {"light": LIGHT, "all": JOBS.values(), "versions": VERSIONS}
