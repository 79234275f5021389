"""Iceberg catalogs show a table's rows by name, and neither they nor their users lose them."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from multiprocessing import get_context
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
from typer.testing import CliRunner

from crdt_mor import Table
from crdt_mor.cli.main import app
from crdt_mor.errors import InvalidInputError, StorageUnavailableError, UnsupportedFeatureError
from crdt_mor.results import Maintained
from tests.mirror.shapes import SCHEMA, in_order, rows, scanned, written_over

pytestmark = pytest.mark.slow
NAME = "lake.events"


def sql(folder: Path) -> Any:
    pytest.importorskip("sqlalchemy", reason="pip install 'pyiceberg[sql-sqlite]'")
    from pyiceberg.catalog import load_catalog

    return load_catalog("tests", type="sql", uri=f"sqlite:///{folder}/catalog.db", warehouse=f"file://{folder}")


def glue(folder: Path) -> Any:
    from pyiceberg.catalog import load_catalog

    keys = {"glue.access-key-id": "x", "glue.secret-access-key": "x", "glue.region": "us-east-1"}
    return load_catalog("tests", type="glue", warehouse=f"file://{folder}", **keys)


@pytest.fixture(params=[sql, glue])
def catalog(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Any]:
    moto = pytest.importorskip("moto")
    with moto.mock_aws():
        made = request.param(tmp_path)
        made.create_namespace("lake", {})
        yield made


@pytest.fixture
def table(tmp_path: Path) -> Table:
    return written_over(Table.create(str(tmp_path / "table"), SCHEMA, key="id", buckets=2))


def shown(catalog: Any) -> list[str]:
    return in_order(catalog.load_table(NAME).scan().to_arrow().to_pylist())


def test_register_again_after_commits_shows_the_rows_of_the_scan(catalog: Any, table: Table) -> None:
    assert table.maintenance.register(catalog, NAME).action == "registered"
    assert table.maintenance.register(catalog, NAME).action == "unchanged"
    for turn in range(3):
        table.upsert(rows([turn], 7 + turn))
        table.mirror("iceberg")  # the entry lags by several snapshots
        table.delete(keys=[turn + 10])
        done = table.maintenance.register(catalog, NAME)
        assert (done.action, done.version, done.replaced) == ("moved", table.version, None)
        assert shown(catalog) == scanned(table)
    assert catalog.load_table(NAME).properties["gc.enabled"] == "false"
    assert scanned(Table.from_catalog(catalog, NAME)) == scanned(table)


def test_register_of_deletion_vectors_outside_rest_is_refused(catalog: Any, table: Table) -> None:
    table.maintenance.register(catalog, NAME)
    before = shown(catalog)
    table.mirror("iceberg", deletes="vectors")
    table.upsert(rows([1], 7))
    with pytest.raises(UnsupportedFeatureError, match="only in REST catalogs"):
        table.maintenance.register(catalog, NAME)
    assert shown(catalog) == before


def test_register_after_a_write_and_a_property_of_another_engine_restores_both(catalog: Any, table: Table) -> None:
    table.maintenance.register(catalog, NAME)
    entry = catalog.load_table(NAME)
    with entry.transaction() as change:
        change.set_properties({"gc.enabled": "true"})
    with pytest.warns(UserWarning, match="copy-on-write"):
        entry.delete("id < 100000")
    assert shown(catalog) != scanned(table)
    written = catalog.load_table(NAME).current_snapshot().snapshot_id
    table.upsert(rows([5], 9))

    done = table.maintenance.register(catalog, NAME)
    assert (done.action, done.replaced) == ("moved", written)
    assert f"replaced snapshot {written}, which another engine wrote" in str(done)

    assert shown(catalog) == scanned(table)
    assert catalog.load_table(NAME).properties["gc.enabled"] == "false"


def test_register_under_the_name_of_another_table_is_refused(catalog: Any, table: Table, tmp_path: Path) -> None:
    other = written_over(Table.create(str(tmp_path / "other"), SCHEMA, key="id", buckets=2))
    other.maintenance.register(catalog, NAME)
    with pytest.raises(InvalidInputError, match=r"another table.*lake\.events"):
        table.maintenance.register(catalog, NAME)
    assert Table.from_catalog(catalog, NAME).uri.endswith("/other")


def test_drop_through_a_catalog_keeps_all_rows(catalog: Any, table: Table) -> None:
    before = scanned(table)
    table.maintenance.register(catalog, NAME)
    catalog.drop_table(NAME)
    assert scanned(Table(table.uri)) == before
    assert table.maintenance.register(catalog, NAME).action == "registered"
    assert shown(catalog) == before


def test_entry_outside_rest_has_a_folder_of_its_own(catalog: Any, table: Table) -> None:
    """Trino's `DROP TABLE` deletes the entry's folder: without its own, it deletes the table."""
    before = scanned(table)
    table.maintenance.register(catalog, NAME)
    location = catalog.load_table(NAME).location()
    assert location.endswith("/metadata/entry")
    catalog.drop_table(NAME)
    shutil.rmtree(location.removeprefix("file://"))
    assert scanned(Table(table.uri)) == before
    assert table.maintenance.register(catalog, NAME).action == "registered"
    assert shown(catalog) == before


def test_entry_with_the_tables_folder_gets_its_own(catalog: Any, table: Table) -> None:
    catalog.register_table(NAME, table.mirror("iceberg").uri)
    assert table.maintenance.register(catalog, NAME).action == "moved"
    assert catalog.load_table(NAME).location().endswith("/metadata/entry")
    assert table.maintenance.register(catalog, NAME).action == "unchanged"


def registered(uri: str, folder: str) -> str:
    return Table(uri).maintenance.register(sql(Path(folder)), NAME).action


def test_three_processes_at_once_leave_one_line_of_snapshots(table: Table, tmp_path: Path) -> None:
    with ProcessPoolExecutor(3, mp_context=get_context("spawn")) as pool:
        for turn in range(4):
            table.upsert(rows([turn], 7 + turn))
            done = list(pool.map(registered, [table.uri] * 3, [str(tmp_path)] * 3))
            assert done.count("unchanged") == 2
            assert shown(sql(tmp_path)) == scanned(table)
    snapshots = sql(tmp_path).load_table(NAME).metadata.snapshots
    parents = [one.parent_snapshot_id for one in snapshots[1:]]
    assert parents == [one.snapshot_id for one in snapshots[:-1]]


def test_a_namespace_that_another_process_makes_at_once_is_used(
    table: Table, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    catalog = sql(tmp_path)

    def beaten(namespace: tuple[str, ...]) -> None:
        sql(tmp_path).create_namespace(namespace)
        raise OSError("UNIQUE constraint failed")

    monkeypatch.setattr(catalog, "create_namespace_if_not_exists", beaten)
    assert table.maintenance.register(catalog, NAME).action == "registered"
    assert shown(sql(tmp_path)) == scanned(table)


def test_a_namespace_that_cannot_be_made_says_why(
    table: Table, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    catalog = sql(tmp_path)

    def refused(namespace: tuple[str, ...]) -> None:
        raise OSError("the disk is full")

    monkeypatch.setattr(catalog, "create_namespace_if_not_exists", refused)
    with pytest.raises(StorageUnavailableError, match="the disk is full"):
        table.maintenance.register(catalog, NAME)


# --- by the property --------------------------------------------------------------------------------------------------


@pytest.fixture
def configured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A SQL catalog `prod` and a REST catalog `gone` without a server, in pyiceberg's configuration."""
    from pyiceberg.utils.config import Config

    monkeypatch.setenv("PYICEBERG_CATALOG__PROD__URI", f"sqlite:///{tmp_path}/catalog.db")
    monkeypatch.setenv("PYICEBERG_CATALOG__GONE__URI", "http://127.0.0.1:9/")
    monkeypatch.setattr("pyiceberg.catalog._ENV_CONFIG", Config())


def in_catalogs(done: Maintained) -> list[tuple[str, str]]:
    return [(one.state, one.why or one.error) for one in done.actions if one.service == "catalog"]


@pytest.mark.usefixtures("configured")
def test_maintain_moves_the_entries_of_the_property(table: Table) -> None:
    from pyiceberg.catalog import load_catalog

    table.set_properties({"crdt_mor.mirror.catalogs": f"prod:{NAME}, prod:lake.again"})
    why = [f"{name} of the catalog prod showed an older version" for name in (NAME, "lake.again")]
    for turn in range(2):
        table.upsert(rows([turn], 7 + turn))
        if turn:
            table.mirror("iceberg")  # as a process that died before moving the entry
        assert in_catalogs(table.maintenance.maintain(dry_run=True)) == [("due", one) for one in why]
        assert in_catalogs(table.maintenance.maintain()) == [("done", one) for one in why]
        assert shown(load_catalog("prod")) == scanned(table)
        assert not in_catalogs(table.maintenance.maintain(dry_run=True)) + in_catalogs(table.maintenance.maintain())


@pytest.mark.usefixtures("configured")
def test_a_catalog_that_does_not_answer_stops_no_other_step(table: Table) -> None:
    table.set_properties({"crdt_mor.mirror.catalogs": f"gone:{NAME}, nowhere:{NAME}, prod:{NAME}"})
    gone, nowhere, prod = in_catalogs(table.maintenance.maintain())
    assert gone[0] == "failed"
    assert "did not answer" in gone[1]
    assert nowhere[0] == "refused"
    assert "PYICEBERG_CATALOG__NOWHERE__URI" in nowhere[1]
    assert prod[0] == "done"


# --- on the command line, and by address ------------------------------------------------------------------------------


def command(*arguments: str, code: int = 0) -> str:
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == code, result.output
    return result.stdout + result.stderr


def test_commands_register_and_open_by_name(table: Table, tmp_path: Path) -> None:
    from pyiceberg.catalog import load_catalog

    url = f"sqlite:///{tmp_path}/catalog.db"
    said = json.loads(command("register", table.uri, NAME, "--sql", url, "--output", "json"))
    assert (said["name"], said["action"], said["version"]) == (NAME, "registered", table.version)
    assert "unchanged" in command("register", table.uri, NAME, "--sql", url)
    assert scanned(Table.from_catalog(load_catalog("default", uri=url), NAME)) == scanned(table)


def test_an_address_in_glue_opens_the_table(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    moto = pytest.importorskip("moto")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "eu-west-1")
    with moto.mock_aws():
        command("register", table.uri, NAME, "--glue")
        assert scanned(Table("glue://lake/events")) == scanned(table)
        assert str(table.count()) in command("count", "glue://lake/events")
        with pytest.raises(InvalidInputError, match="no table of this name"):
            Table("glue://lake/nothing")
        with pytest.raises(InvalidInputError, match="glue://database/table"):
            Table("glue://lake")


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--iceberg-rest", "http://127.0.0.1:9/"], "check its address"),
        (["--iceberg-rest", "{server}/missing"], "check its address.*404"),
        (["--iceberg-rest", "{server}/secret"], "refused access.*No entry"),
        (["--iceberg-rest", "{server}/page"], "check its address.*JSON"),
        (["--hive", "thrift://127.0.0.1:9"], r"pip install 'pyiceberg\[hive\]'|did not answer"),
        (["--sql", "sqlite:////nowhere/catalog.db"], "unable to open database file"),
        (["--catalog", "nowhere"], "PYICEBERG_CATALOG__NOWHERE__URI"),
        (["--glue"], "refused access|did not answer"),
    ],
)
def test_an_error_of_a_catalog_is_a_line_that_names_the_next_step(
    options: list[str], said: str, table: Table, server: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "eu-west-1")
    error = command("register", table.uri, NAME, *(one.format(server=server) for one in options), code=1)
    assert len(error.splitlines()) == 1
    assert "unexpected error" not in error
    assert re.search(said, error), error


def test_a_command_takes_one_catalog(table: Table) -> None:
    assert "pass one of" in command("register", table.uri, NAME, code=2)
    assert "pass one of" in command("register", table.uri, NAME, "--glue", "--catalog", "prod", code=2)


class Replies(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        code, text = {
            "secret": (401, '{"error": {"message": "No entry", "type": "NotAuthorizedException", "code": 401}}'),
            "page": (200, "<html>Welcome</html>"),
        }.get(self.path.split("/")[1], (404, "<html>Not here</html>"))
        self.send_response(code)
        self.end_headers()
        self.wfile.write(text.encode())

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    """A server that is no catalog."""
    with ThreadingHTTPServer(("127.0.0.1", 0), Replies) as made:
        thread = Thread(target=made.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{made.server_port}"
        made.shutdown()
        thread.join()


def test_register_in_something_else_than_a_catalog_is_refused(table: Table) -> None:
    with pytest.raises(InvalidInputError, match="load_catalog"):
        table.maintenance.register("prod", NAME)  # type: ignore[arg-type]
    from pyiceberg.catalog.noop import NoopCatalog

    with pytest.raises(UnsupportedFeatureError, match="lacks an operation"):
        table.maintenance.register(NoopCatalog("none"), NAME)
