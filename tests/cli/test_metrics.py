"""`crdt-mor metrics`: Prometheus reads it, and the dashboard, the alerts and their page name nothing else."""

from __future__ import annotations

import json
import re
import shlex
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Event
from typing import Any
from urllib.request import urlopen

import polars as pl
import pytest
from prometheus_client.parser import text_string_to_metric_families
from typer.testing import CliRunner, Result

import crdt_mor as mor
from crdt_mor.cli import inputs, metrics
from crdt_mor.cli.main import app
from tests.waiting import wait_for

ROOT = Path(__file__).parents[2]
MONITORING = ROOT / "examples" / "monitoring"
PAGE = ROOT / "docs" / "alerts.md"


@pytest.fixture
def table(fast_path: Path) -> Path:
    made = mor.Table.create(fast_path / "events", {"id": pl.String, "views": pl.Int64}, key="id", buckets=2)
    for i in range(2):
        made.upsert(pl.DataFrame({"id": ["a", "b"], "views": [i, i]}))
    return fast_path / "events"


def run(*arguments: object, code: int = 0) -> Result:
    result = CliRunner().invoke(app, ["metrics", *map(str, arguments)])
    assert result.exit_code == code, result.output
    return result


def samples(text: str) -> dict[tuple[str, str, str], float]:
    """The value of each series: by name, table and the other label."""
    found = {}
    for family in text_string_to_metric_families(text):
        for one in family.samples:
            others = [value for name, value in one.labels.items() if name != "table"]
            found[one.name, one.labels["table"], "".join(others)] = one.value
    return found


def test_text_has_the_numbers_of_the_table_and_names_of_prometheus(table: Path) -> None:
    mor.Table(table).verify()
    found = samples(run(table).stdout)
    numbers = mor.Table(table).inspect.metrics()
    assert found["crdt_mor_up", str(table), ""] == 1
    assert found["crdt_mor_log_bytes", str(table), ""] == numbers.log_bytes > 0
    assert found["crdt_mor_versions_total", str(table), ""] == numbers.versions_total
    assert found["crdt_mor_service_due", str(table), "compaction"] == 0
    assert found["crdt_mor_verify_findings", str(table), ""] == 0
    names = {name for name, _, _ in found}
    assert not [name for name in names if re.search(r"(_ms|_s|_minutes|_kb|_mib)$|[^a-z0-9_]", name)]
    assert {name for name in names if "bytes" in name} == {name for name in names if name.endswith("_bytes")}
    assert {name for name in names if "age" in name} == {name for name in names if name.endswith("_seconds")}


def test_a_table_that_cannot_be_read_is_down_and_hides_no_other(table: Path, fast_path: Path) -> None:
    result = run(fast_path / "none", table, table, code=1)
    found = samples(result.stdout)
    assert {key: value for key, value in found.items() if key[0] == "crdt_mor_up"} == {
        ("crdt_mor_up", str(fast_path / "none"), ""): 0, ("crdt_mor_up", str(table), ""): 1,
    }  # fmt: skip
    assert ("crdt_mor_log_bytes", str(fast_path / "none"), "") not in found
    assert "there is no table here" in result.stderr


def test_a_table_whose_store_does_not_answer_is_down_and_hides_no_other(
    table: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    over, opened = Event(), inputs.opened

    def opened_late(uri: str) -> mor.Table:
        return opened(str(table)) if uri == "silent" and over.wait() else opened(uri)

    monkeypatch.setattr(metrics, "PATIENCE_MS", 200)
    monkeypatch.setattr(inputs, "opened", opened_late)
    watched = [metrics._Place("silent"), metrics._Place(str(table))]
    for _ in range(2):  # the second scrape begins no second thread
        assert {uri: found is not None for uri, found in metrics._read(watched).items()} == {
            "silent": False, str(table): True,
        }  # fmt: skip
    silent = watched[0].tables["silent"].thread
    over.set()
    silent.join()
    assert metrics._read(watched)["silent"] is not None


def test_json_has_a_line_for_each_table(table: Path, fast_path: Path) -> None:
    lines = run(table, fast_path / "none", "--output", "json", code=1).stdout.splitlines()
    first, second = map(json.loads, lines)
    assert (first["table"], first["up"], first["file_groups"]) == (str(table), True, 2)
    assert second == {"table": str(fast_path / "none"), "up": False}


def test_a_folder_stands_for_the_tables_below_it(table: Path, fast_path: Path) -> None:
    shop = str(fast_path / "shop/orders")
    mor.Table.create(shop, {"id": pl.String}, key="id")
    mor.Table.create(fast_path / "old", {"id": pl.String}, key="id").maintenance.migrate(fast_path / "new", buckets=2)
    lines = [json.loads(line) for line in run(fast_path, table, "--json").stdout.splitlines()]
    assert [(line["table"], line["up"]) for line in lines] == [
        (str(table), True), (str(fast_path / "new"), True), (str(fast_path / "old"), True), (shop, True),
    ]  # fmt: skip
    place = metrics._Place(str(fast_path))
    mor.drop_table(fast_path / "new")
    assert metrics._read([place]).keys() == {str(table), str(fast_path / "old"), shop}
    mor.drop_table(shop)
    mor.Table.create(fast_path / "shop/items", {"id": pl.String}, key="id")
    assert metrics._read([place]).keys() == {str(table), str(fast_path / "old"), str(fast_path / "shop/items")}
    shutil.rmtree(fast_path)
    assert not any(metrics._read([place]).values())


@pytest.mark.parametrize("listen", ["9464", ":", ":x", ":70000"])
def test_an_address_that_is_none_is_refused(table: Path, listen: str) -> None:
    assert "[HOST]:PORT" in run(table, "--listen", listen, code=2).output


def test_a_port_in_use_is_an_error(table: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        result = run(table, "--listen", f"127.0.0.1:{taken.getsockname()[1]}", code=1)
    assert "cannot listen there" in result.output


def test_without_the_client_the_error_says_what_to_install(table: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "prometheus_client", None)
    assert "crdt-mor[metrics]" in run(table, code=1).stderr


# --- the dashboard, the alerts and their page -------------------------------------------------------------------------


def exported() -> set[str]:
    """All names that a table can have."""
    return {sample for family in metrics.families({}) for sample in _names(family)}


def _names(family: Any) -> Iterator[str]:
    yield f"{family.name}_total" if family.type == "counter" else family.name


@pytest.mark.parametrize("file", [MONITORING / "grafana.json", MONITORING / "alerts.yml", PAGE], ids=lambda p: p.name)
def test_only_metrics_that_exist_are_named(file: Path) -> None:
    named = set(re.findall(r"\bcrdt_mor_\w+", file.read_text()))
    assert named
    assert named <= exported()


def test_the_dashboard_shows_every_metric() -> None:
    board = json.loads((MONITORING / "grafana.json").read_text())
    shown = {name for p in board["panels"] for t in p["targets"] for name in re.findall(r"crdt_mor_\w+", t["expr"])}
    assert shown == exported()
    places = [tuple(panel["gridPos"].values()) for panel in board["panels"]]
    assert len({panel["id"] for panel in board["panels"]}) == len(places) == len(set(places))


def test_each_alert_has_a_part_of_the_page_and_the_metrics_without_one_have_a_line() -> None:
    page, rules = PAGE.read_text(), (MONITORING / "alerts.yml").read_text()
    alerts = re.findall(r"alert: (\w+)", rules)
    assert len(alerts) == 3
    assert [f"docs/alerts.md#{name.lower()}" for name in alerts] == re.findall(r"runbook: (\S+)", rules)
    assert set(alerts) <= set(re.findall(r"^## (\w+)$", page, re.MULTILINE))


def test_every_command_that_the_page_advises_runs(fast_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(fast_path)
    table = mor.Table.create("events", {"id": pl.String, "views": pl.Int64}, key="id")
    table.upsert(pl.DataFrame({"id": ["a"], "views": [1]}))
    table.changes(reader="billing").done()
    table.copy("backup")
    text = PAGE.read_text()
    advised = re.findall(r"^    (crdt-mor .*)$", text, re.MULTILINE)
    advised += re.findall(r"\| `(crdt-mor [^`]*)` \|$", text, re.MULTILINE)
    ran = [line for line in advised if "s3://" not in line]
    assert len(ran) > 15
    for line in ran:
        if "INSTANT" not in line:
            advise(line)
            continue
        with suppress(mor.errors.WriterExpiredError), table.transaction() as tx:
            tx.upsert(pl.DataFrame({"id": ["b"], "views": [2]}))
            (pending,) = table.inspect.pending()["requested_at"].to_pylist()
            advise(line.replace("INSTANT", pending))
    assert table.count() == 1


def advise(line: str) -> None:
    result = CliRunner().invoke(app, shlex.split(line, comments=True)[1:])
    assert result.exit_code == 0, f"{line}\n{result.output}"


# --- a real Prometheus ------------------------------------------------------------------------------------------------


@contextmanager
def served(*tables: Path) -> Iterator[str]:
    """The address at which a process serves the metrics of tables."""
    command = [sys.executable, "-m", "crdt_mor", "metrics", *map(str, tables), "--listen", "127.0.0.1:0"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        try:
            found = re.search(r"http://(\S+)/metrics", process.stderr.readline())
            assert found is not None
            yield found[1]
        finally:
            process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 0


def answer(address: str, path: str) -> Any:
    with urlopen(f"http://{address}{path}", timeout=10) as reply:
        return json.loads(reply.read())


@pytest.mark.slow
def test_a_server_answers_anew_at_each_scrape_until_it_is_stopped(table: Path, fast_path: Path) -> None:
    with served(table, fast_path / "later") as address:
        for versions, later in ((4, 0), (6, 0), (6, 1)):
            with urlopen(f"http://{address}/metrics", timeout=30) as reply:
                found = samples(reply.read().decode())
            assert found["crdt_mor_up", str(fast_path / "later"), ""] == later
            if versions == 4:
                before = found["crdt_mor_versions_total", str(table), ""]
                mor.Table(table).upsert(pl.DataFrame({"id": ["c"], "views": [1]}))
            else:
                assert found["crdt_mor_versions_total", str(table), ""] > before
                shutil.copytree(table, fast_path / "later", dirs_exist_ok=True)


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("prometheus") is None, reason="no Prometheus: apt-get install prometheus")
def test_prometheus_scrapes_the_tables_and_its_alerts_fire(table: Path, fast_path: Path) -> None:
    assert subprocess.run(["promtool", "check", "rules", MONITORING / "alerts.yml"], check=False).returncode == 0
    rules = re.sub(r"for: \w+", "for: 0s", (MONITORING / "alerts.yml").read_text())
    (fast_path / "alerts.yml").write_text(rules)
    with socket.create_server(("127.0.0.1", 0)) as free:
        place = f"127.0.0.1:{free.getsockname()[1]}"
    none = fast_path / "none"
    with served(table, none) as address:
        (fast_path / "prometheus.yml").write_text(
            "global: {scrape_interval: 1s, evaluation_interval: 1s}\n"
            "rule_files: [alerts.yml]\n"
            f"scrape_configs: [{{job_name: crdt_mor, static_configs: [{{targets: ['{address}']}}]}}]\n"
        )
        command = ["prometheus", "--config.file=prometheus.yml", "--storage.tsdb.path=data"]
        command.append(f"--web.listen-address={place}")
        with (fast_path / "prometheus.log").open("w") as log:
            process = subprocess.Popen(command, cwd=fast_path, stdout=log, stderr=log)
        try:
            wait_for("alert of the missing table", lambda: _alerts(place) == {("CrdtMorUnreadable", str(none))})
            up = answer(place, "/api/v1/query?query=crdt_mor_up")["data"]["result"]
            assert {one["metric"]["table"]: one["value"][1] for one in up} == {str(table): "1", str(none): "0"}
            known = answer(place, "/api/v1/label/__name__/values")["data"]
            missing = exported() - set(known)  # nobody has verified it, and nobody reads its changes
            assert {name for name in missing if not re.match("crdt_mor_(verify|reader)_", name)} == set()
        finally:
            process.terminate()
            process.wait(30)


def _alerts(place: str) -> set[tuple[str, str]]:
    try:
        found = answer(place, "/api/v1/alerts")["data"]["alerts"]
    except OSError:  # it is starting
        return set()
    return {(one["labels"]["alertname"], one["labels"]["table"]) for one in found if one["state"] == "firing"}
