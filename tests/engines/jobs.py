"""Each engine's work, one process per job: `reading`, `registering` or `keeping`."""

from __future__ import annotations

from dataclasses import dataclass

from tests.engines.servers import SERVERS, missing


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
        """What this machine lacks for the job, or ""."""
        spark = missing(17, 21) if self.requirements == "heavy" else ""
        return spark or next((SERVERS[name].missing() for name in self.servers if SERVERS[name].missing()), "")


READERS = (
    "pyiceberg", "duckdb-iceberg", "duckdb-delta", "polars-iceberg", "polars-delta", "delta-rs", "delta-rs-pyarrow",
     "datafusion-delta", "clickhouse-iceberg", "clickhouse-delta", "daft-iceberg", "daft-delta",
)  # fmt: skip
REST = ("rest",)

LIGHT = (
    *(Job(name) for name in READERS),
    Job("pyiceberg-rest", servers=REST),
    Job("duckdb-rest", servers=REST),
    Job("rest-registers", "registering", "rest", servers=REST),
    Job("pyiceberg-rest-keeps", "keeping", servers=REST),
    Job("duckdb-keeps", "keeping", servers=REST),
    Job("delta-rs-keeps", "keeping"),
)
HEAVY = (
    Job("spark-iceberg", requirements="heavy"),
    Job("spark-delta", requirements="heavy"),
)
JOBS = {job.name: job for job in (*LIGHT, *HEAVY)}
