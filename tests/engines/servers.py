"""Servers of catalogs and engines, from Maven Central: each is a process that ends with its `with` block.

rest     Iceberg's RESTCatalogServer, on SQLite    Java 17
hive     Hive's metastore, on Derby                Java 17
nessie   Nessie, in memory, over moto's S3         Java 21 or newer
trino    Trino, over `rest` and `hive`             Java 24 or newer
"""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.engines.machine import KEPT, answers, artifact, classpath, free_port, java, missing, process, says

REST = (
    "org.apache.iceberg:iceberg-core:1.10.1",
    "org.apache.iceberg:iceberg-core:1.10.1:tests",
    "org.apache.iceberg:iceberg-open-api:1.10.1:test-fixtures",
    "org.eclipse.jetty:jetty-servlet:11.0.25",
    "org.xerial:sqlite-jdbc:3.50.3.0",
    "org.apache.hadoop:hadoop-client-api:3.4.1",
    "org.apache.hadoop:hadoop-client-runtime:3.4.1",
    "org.slf4j:slf4j-simple:2.0.17",
)
HIVE = (
    "org.apache.hive:hive-standalone-metastore:3.1.3",
    "org.apache.hadoop:hadoop-common:3.3.6",
    "org.apache.hadoop:hadoop-mapreduce-client-core:3.3.6",
    "org.apache.derby:derby:10.14.2.0",
)
NESSIE = "org.projectnessie.nessie:nessie-quarkus:0.99.0:jar:runner"
TRINO = "io.trino:trino-server:476:tar.gz"


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
    command = [
        str(java(17, 21)),
        "-Xmx256m",
        "-cp",
        classpath("rest", REST),
        "org.apache.iceberg.rest.RESTCatalogServer",
    ]
    with process(command, folder, lambda: answers(port), settings):
        yield f"http://127.0.0.1:{port}"


@contextmanager
def hive(folder: Path) -> Iterator[str]:
    """Hive's metastore; its address."""
    port = free_port()
    settings = {
        "javax.jdo.option.ConnectionURL": f"jdbc:derby:;databaseName={folder}/derby;create=true",
        "javax.jdo.option.ConnectionDriverName": "org.apache.derby.jdbc.EmbeddedDriver",
        "datanucleus.schema.autoCreateAll": "true",
        "metastore.schema.verification": "false",
        "metastore.warehouse.dir": f"file://{folder}/warehouse",
        "metastore.task.threads.always": "org.apache.hadoop.hive.metastore.events.EventCleanerTask",
        "metastore.expression.proxy": "org.apache.hadoop.hive.metastore.DefaultPartitionExpressionProxy",
    }
    properties = "".join(
        f"<property><name>{name}</name><value>{value}</value></property>" for name, value in settings.items()
    )
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "metastore-site.xml").write_text(f"<configuration>{properties}</configuration>")
    path = f"{folder}:{classpath('hive', HIVE)}"
    command = [str(java(17, 21)), "-Xmx512m", "-cp", path, str(Path(__file__).with_name("Metastore.java")), str(port)]
    with process(command, folder, lambda: answers(port)):
        yield f"thrift://127.0.0.1:{port}"


@contextmanager
def nessie(folder: Path) -> Iterator[str]:
    """Nessie's catalog of Iceberg, over an S3 whose options go to the variable ENGINES_S3; its address."""
    from tests.servers import AWS_KEYS, BUCKET, s3

    store = s3()
    os.environ["ENGINES_S3"] = json.dumps(dict(store.options))
    port, management = free_port(), free_port()
    options = "nessie.catalog.service.s3.default-options"
    settings = {
        "quarkus.http.host": "127.0.0.1",
        "quarkus.http.port": port,
        "quarkus.management.port": management,
        "nessie.catalog.default-warehouse": "lake",
        "nessie.catalog.warehouses.lake.location": f"s3://{BUCKET}/",
        f"{options}.endpoint": store.options["aws_endpoint_url"],
        f"{options}.path-style-access": "true",
        f"{options}.region": store.options["aws_region"],
        f"{options}.request-signing-enabled": "false",
        f"{options}.access-key": "urn:nessie-secret:quarkus:keys",
        "keys.name": AWS_KEYS["aws_access_key_id"],
        "keys.secret": AWS_KEYS["aws_secret_access_key"],
    }
    given = [f"-D{name}={value}" for name, value in settings.items()]
    command = [str(java(21)), "-Xmx512m", *given, "-jar", str(artifact(NESSIE))]
    with process(command, folder, lambda: answers(port)):
        yield f"http://127.0.0.1:{port}/iceberg"


def unpacked() -> Path:
    """Trino's server, which `tar` unpacks once: the files of its plugins are hard links to each other."""
    folder = KEPT / "trino"
    made = folder / "trino-server-476"
    if not (made / "unpacked").exists():
        folder.mkdir(parents=True, exist_ok=True)
        subprocess.run(["tar", "xzf", str(artifact(TRINO)), "-C", str(folder)], check=True)
        (made / "unpacked").touch()
    return made


def configuration(folder: Path, port: int) -> dict[str, list[str]]:
    """The files of Trino's configuration: one node, with the catalogs `rest`, `hive` and `delta`."""
    file_system = "fs.hadoop.enabled=true"
    iceberg = ["iceberg.expire-snapshots.min-retention=0s", "iceberg.remove-orphan-files.min-retention=0s", file_system]
    return {
        "config": [
            "coordinator=true",
            "node-scheduler.include-coordinator=true",
            "query-manager.required-workers=1",  # queries wait for the node
            f"http-server.http.port={port}",
            f"discovery.uri=http://127.0.0.1:{port}",
            "node.internal-address=127.0.0.1",
            "query.max-memory=512MB",
            "query.max-memory-per-node=512MB",
        ],
        "catalog/rest": [
            "connector.name=iceberg",
            "iceberg.catalog.type=rest",
            f"iceberg.rest-catalog.uri={os.environ['ENGINES_REST']}",
            *iceberg,
        ],
        "catalog/hive": [
            "connector.name=iceberg",
            "iceberg.catalog.type=hive_metastore",
            f"hive.metastore.uri={os.environ['ENGINES_HIVE']}",
            *iceberg,
        ],
        "catalog/delta": [
            "connector.name=delta_lake",
            "hive.metastore=file",
            f"hive.metastore.catalog.dir=file://{folder}/metastore",
            "delta.register-table-procedure.enabled=true",
            "delta.vacuum.min-retention=0s",
            file_system,
        ],
    }


@contextmanager
def trino(folder: Path) -> Iterator[str]:
    """Trino; its address."""
    port, home = free_port(), unpacked()
    for name, lines in configuration(folder, port).items():
        path = folder / "etc" / f"{name}.properties"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("\n".join(lines) + "\n")
    (folder / "plugin").mkdir()
    for plugin in ("iceberg", "delta-lake"):
        (folder / "plugin" / plugin).symlink_to(home / "plugin" / plugin)
    options = [
        "-Xmx1536m",
        "-Djdk.attach.allowAttachSelf=true",
        "--enable-native-access=ALL-UNNAMED",
        "--sun-misc-unsafe-memory-access=allow",
        "-Dconfig=etc/config.properties",
        "-Dnode.environment=tests",
        "-Dnode.id=1",
        f"-Dnode.data-dir={folder}/data",
    ]
    command = [str(java(24)), *options, "-cp", f"{home}/lib/*", "io.trino.server.TrinoServer"]
    address = f"http://127.0.0.1:{port}"
    with process(command, folder, lambda: says(f"{address}/v1/info", '"starting":false')):
        yield address


@dataclass(frozen=True)
class Server:
    """Starts a server in a folder and gives its address; it needs a Java of a release between two.

    Attributes:
        is_catalog: True if every shape gets an entry in it.
        requirements: The environment of its clients.
    """

    start: Callable[[Path], AbstractContextManager[str]]
    lowest: int
    highest: int = 99
    is_catalog: bool = False
    requirements: str = "light"

    def missing(self) -> str:
        """The name of a missing program of the server, or ""."""
        return missing(self.lowest, self.highest)


SERVERS = {
    "rest": Server(rest, 17, 21, is_catalog=True),
    "hive": Server(hive, 17, 21, is_catalog=True, requirements="heavy"),
    "nessie": Server(nessie, 21),
    "trino": Server(trino, 24),
}
