"""examples/upkeep: each way to run upkeep maintains the tables below a place.

Airflow and Dagster are large and no dependency: their tests are skipped where they are missing.
"""

from __future__ import annotations

import configparser
import os
import shlex
import signal
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import polars as pl
import pytest
from typer.testing import CliRunner

import crdt_mor as mor
from crdt_mor.cli import maintain
from crdt_mor.cli.main import app
from crdt_mor.testing import SimulatedEnvironment

REPO = Path(__file__).parents[1]
EXAMPLES = REPO / "examples" / "upkeep"
ROWS = pl.DataFrame({"id": ["a"]})


@pytest.fixture
def lake(fast_path: Path) -> Path:
    """Two tables with a compaction that is due."""
    for name in ("events", "shop/clicks"):
        table = mor.Table.create(fast_path / name, ROWS, key="id", buckets=1)
        table.set_properties({"crdt_mor.compaction.log_files": "2", "crdt_mor.maintain": "off"})
        for _ in range(2):
            table.upsert(ROWS)
    return fast_path


def kinds(lake: Path) -> list[str]:
    tables = [mor.Table(lake / name) for name in ("events", "shop/clicks")]
    return [kind for table in tables for kind in table.inspect.files()["kind"].to_pylist()]


class Ends(SimulatedEnvironment):
    """Time in which the system ends the service at its first pause."""

    def sleep(self, seconds: float) -> None:
        os.kill(os.getpid(), signal.SIGTERM)


def test_the_systemd_unit_watches_a_place_and_ends_when_asked(lake: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    unit = configparser.ConfigParser(interpolation=None)
    unit.optionxform = str  # type: ignore[assignment,method-assign]
    unit.read_string((EXAMPLES / "crdt-mor-maintain.service").read_text())
    command = shlex.split(unit["Service"]["ExecStart"])
    assert command[:2] == ["/usr/bin/env", "crdt-mor"]
    monkeypatch.setattr(maintain, "SystemEnvironment", Ends)
    done = CliRunner().invoke(app, [str(lake) if word == "s3://lake" else word for word in command[2:]])
    assert done.exit_code == 0, done.output
    assert kinds(lake) == ["base", "base"]


def test_the_cron_job_of_kubernetes_maintains_its_tables(lake: Path) -> None:
    yaml = pytest.importorskip("yaml", reason="PyYAML comes with the newest versions alone")
    job = yaml.safe_load((EXAMPLES / "cronjob.yaml").read_text())
    assert (job["kind"], job["spec"]["concurrencyPolicy"]) == ("CronJob", "Forbid")
    (container,) = job["spec"]["jobTemplate"]["spec"]["template"]["spec"]["containers"]
    tables = {"s3://lake/events": lake / "events", "s3://lake/clicks": lake / "shop/clicks"}
    program, *words = container["command"]
    done = CliRunner().invoke(app, [str(tables.get(word, word)) for word in words])
    assert (program, done.exit_code) == ("crdt-mor", 0), done.output
    assert kinds(lake) == ["base", "base"]


SCHEDULERS = {
    "dagster": "from dagster_jobs import upkeep; assert upkeep.execute_in_process().success",
    "airflow": "import airflow_dag; run = airflow_dag.upkeep_dag.test(); assert run.state == 'success', run.state",
}


@pytest.mark.slow
@pytest.mark.parametrize("name", SCHEDULERS)
def test_a_scheduler_runs_its_example(name: str, lake: Path, tmp_path: Path) -> None:
    if find_spec(name) is None:
        pytest.skip(f"{name} is not installed: pip install {'apache-' * (name == 'airflow')}{name}")
    settings: dict[str, object] = {
        "AIRFLOW_HOME": tmp_path, "DAGSTER_HOME": tmp_path, "AIRFLOW__CORE__DAGS_FOLDER": EXAMPLES,
        "AIRFLOW__CORE__LOAD_EXAMPLES": False, "CRDT_MOR_PLACE": lake, "PYTHONPATH": f"{EXAMPLES}:{REPO}",
    }  # fmt: skip
    environment = {**os.environ, **{name: str(value) for name, value in settings.items()}}
    if name == "airflow":
        subprocess.run([sys.executable, "-m", "airflow", "db", "migrate"], env=environment, check=True)
    subprocess.run([sys.executable, "-c", SCHEDULERS[name]], env=environment, check=True)
    assert kinds(lake) == ["base", "base"]
