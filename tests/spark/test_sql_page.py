"""docs/spark-sql.md, held to the code: `spark-sql`, a JDBC client and dbt run each line of the page.

python -m pytest -m "spark and (slow or long)" tests/spark/test_sql_page.py
"""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pyspark
import pytest
from typer.testing import CliRunner

from crdt_mor import Table
from crdt_mor.cli.main import app
from tests import waiting
from tests.servers import free_port
from tests.spark.counting import kill, started
from tests.spark.sessions import ROOT

pytestmark = pytest.mark.spark

PAGE = (ROOT / "docs" / "spark-sql.md").read_text()
ROW = re.compile(r"^\| `([^|]+?)`(?:, or .*?)? \| (.+?) \|$", re.MULTILINE)
HOME = Path(pyspark.__file__).parent
DBT = ROOT / ".venvs" / "dbt" / "bin" / "dbt"
MADE = "CREATE TABLE pages USING pages"


def rows(title: str) -> list[tuple[str, str]]:
    """The rows of the table below a title, or below a line."""
    found = ROW.findall(PAGE.partition(f"\n{title}\n")[2].partition("| ")[2].partition("\n\n")[0])
    assert len(found) > 3
    return found


WORKS, REFUSED = rows("## Statements"), rows("Spark refuses these:")


class Lake:
    """A folder with the table of the page, and with the file that names it to Spark."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (module,) = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
        (folder / "pyspark_pages.py").write_text(self.placed(module))
        self.environment = {
            **os.environ,
            "PYSPARK_PYTHON": sys.executable,
            "PYTHONPATH": os.pathsep.join([str(folder), str(ROOT)]),
            "SPARK_HOME": str(HOME),
            "SPARK_LOCAL_IP": "127.0.0.1",
        }
        self.settings = [
            *("--master", "local[2]", "--conf", "spark.ui.enabled=false", "--conf", "spark.sql.shuffle.partitions=2"),
            *("--conf", "spark.sql.catalogImplementation=in-memory"),
            *("--conf", f"spark.sql.warehouse.dir={folder}/warehouse"),
            *("--driver-java-options", f"-Dderby.system.home={folder}"),
        ]
        (create,) = re.findall(r"^echo '(.*)' \| (crdt-mor .*)$", PAGE, re.MULTILINE)
        self.command(create[1], create[0])
        self.table = Table(folder / "lake" / "pages")

    def placed(self, text: str) -> str:
        return text.replace("/lake/", f"{self.folder}/lake/")

    def command(self, line: str, stdin: str = "") -> None:
        """Run a command line of the page."""
        done = CliRunner().invoke(app, shlex.split(self.placed(line))[1:], input=stdin)
        assert done.exit_code == 0, (line, done.output)

    def shown(self) -> dict[str, int]:
        return dict(self.table.scan().to_polars().rows())

    def run(self, program: str, *arguments: str) -> str:
        """Return the output of a program, with its errors."""
        command = [program, *arguments]
        return subprocess.run(
            command, cwd=self.folder, env=self.environment, text=True, check=False,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        ).stdout  # fmt: skip

    def script(self) -> tuple[Path, list[str]]:
        """The statements of the page, each after one that prints its number."""
        (first,) = re.findall(r'^spark-sql -e "(.*)"$', PAGE, re.MULTILINE)
        statements = [*first.split("; "), *(one for one, _ in WORKS), MADE, *(one for one, _ in REFUSED)]
        text = "".join(f"SELECT 'number {n}';\n{self.placed(one)};\n" for n, one in enumerate(statements))
        script = self.folder / "page.sql"
        script.write_text(text)
        return script, statements


def check_answers(lake: Lake, printed: str, statements: list[str]) -> None:
    """Each statement of the page does what its row says."""
    _, *answers = re.split(r"number \d+\n", printed.replace("null", ""))  # beeline's progress is a null
    assert len(answers) == len(statements), printed
    failed = [one for one, answer in zip(statements, answers, strict=True) if re.search(r"\[[A-Z_.]{9,}|rror", answer)]
    assert failed == [one for one, _ in REFUSED], printed
    assert "`pages` cannot be found" not in printed
    shown = re.search(r"```text\n(.*?)```", PAGE, re.DOTALL)
    assert shown is not None
    assert set(shown[1].splitlines()) <= {line.replace("\t", "  ") for line in answers[2].splitlines()}
    assert lake.shown() == {"home": 6}, "upserted, deleted, replaced"


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return Lake(tmp_path)


@pytest.mark.slow
def test_spark_sql_runs_each_statement_and_the_command_line_does_the_rest(lake: Lake) -> None:
    script, statements = lake.script()
    ignoring = ("--hiveconf", "hive.cli.errors.ignore=true")
    printed = lake.run(str(HOME / "bin" / "spark-sql"), *lake.settings, *ignoring, "-f", str(script))
    check_answers(lake, printed, statements)
    for _, instead in REFUSED:
        if instead.startswith("`crdt-mor "):
            lake.command(instead.strip("`"))
    assert lake.table.schema.names == ["page", "views", "title"]


@pytest.mark.long
def test_an_error_in_a_file_hides_the_formats_of_all_files_and_is_in_the_log(lake: Lake) -> None:
    (lake.folder / "pyspark_other.py").write_text("from crdt_mor.readers.spark import nothing_of_this_name\n")
    printed = lake.run(str(HOME / "bin" / "spark-sql"), *lake.settings, "-e", MADE)
    for said in ("Skipping the lookup of Python Data Sources", "nothing_of_this_name", "[DATA_SOURCE_NOT_FOUND]"):
        assert said in printed, printed


@pytest.fixture
def address(lake: Lake) -> Iterator[str]:
    """The address of a server of JDBC, started as the page has it."""
    (start,) = re.findall(r"^spark-submit (.*)$", PAGE, re.MULTILINE)
    port, log = free_port(), lake.folder / "server.log"
    where = ("--hiveconf", f"hive.server2.thrift.port={port}", "--hiveconf", "hive.server2.thrift.bind.host=127.0.0.1")
    program = [str(HOME / "bin" / "spark-submit"), *lake.settings, *start.split(), *where]
    server = started(program, log, lake.environment)
    try:
        waiting.wait_for("server", lambda: "HiveThriftServer2 started" in log.read_text(), 300, log.read_text, 0.1)
        yield f"127.0.0.1:{port}"
    finally:
        kill(server)


def beeline(lake: Lake, address: str, *arguments: str) -> str:
    client = (str(HOME / "bin" / "beeline"), "-u", f"jdbc:hive2://{address}", "--silent=true", "--outputformat=tsv2")
    return lake.run(*client, "--showHeader=false", *arguments)


@pytest.mark.long
def test_a_client_of_jdbc_runs_each_statement(lake: Lake, address: str) -> None:
    script, statements = lake.script()
    printed = beeline(lake, address, "--force=true", "-f", str(script))
    check_answers(lake, printed, statements)
    assert "home\t6" in beeline(lake, address, "-e", "SELECT * FROM pages"), "another connection knows the name"


# --- dbt --------------------------------------------------------------------------------------------------------------

MODELS = {
    "totals": '{{ config(materialized="table") }} SELECT count(*) AS n, sum(views) AS views FROM {{ ref("pages") }}',
    "top": 'SELECT * FROM {{ source("lake", "pages") }} WHERE views > 1',
}
SCHEMA = {
    "sources": [{"name": "lake", "schema": "default", "tables": [{"name": "pages"}]}],
    "models": [{"name": "pages", "columns": [{"name": "page", "data_tests": ["unique", "not_null"]}]}],
}


class Project:
    """A project of dbt whose model `pages` has the rows `dbt` and `home`."""

    def __init__(self, lake: Lake, address: str) -> None:
        self._lake, self._folder = lake, lake.folder / "project"
        host, port = address.split(":")
        output = {
            "type": "spark",
            "method": "thrift",
            "host": host,
            "port": int(port),
            "schema": "default",
            "user": "x",
        }
        profiles = {"shop": {"target": "t", "outputs": {"t": output}}}
        files = {"dbt_project": {"name": "shop", "version": "1.0", "profile": "shop"}, "profiles": profiles}
        (self._folder / "models").mkdir(parents=True)
        for name, content in (*files.items(), ("models/schema", SCHEMA)):
            (self._folder / f"{name}.yml").write_text(json.dumps(content))  # JSON is YAML
        for name, text in MODELS.items():
            (self._folder / "models" / f"{name}.sql").write_text(text)

    def run(self, config: str, *arguments: str) -> str:
        """Build the project with this config of the model `pages`."""
        select = "SELECT 'dbt' AS page, CAST(7 AS BIGINT) AS views UNION ALL SELECT 'home', CAST(9 AS BIGINT)"
        (self._folder / "models" / "pages.sql").write_text(f"{{{{ config({config}) }}}}\n{select}\n")
        where = ("--project-dir", str(self._folder), "--profiles-dir", str(self._folder))
        return self._lake.run(str(DBT), "--no-send-anonymous-usage-stats", *arguments, *where)


@pytest.mark.long
@pytest.mark.skipif(
    not DBT.exists(), reason="no dbt: python -m venv .venvs/dbt; .venvs/dbt/bin/pip install -r tests/spark/dbt.txt"
)
def test_models_of_dbt_do_what_the_page_says(lake: Lake, address: str) -> None:
    append, replace, merge, table = (config for config, _ in rows("## dbt-spark"))
    beeline(lake, address, "-e", f"{MADE}; INSERT INTO pages VALUES ('home', 1), ('news', 2)")
    project = Project(lake, address)
    assert "ERROR=0" in (printed := project.run(append, "build")), printed
    assert lake.shown() == {"home": 9, "news": 2, "dbt": 7}
    assert "3\t18" in beeline(lake, address, "-e", "SELECT * FROM totals")
    assert "ERROR=0" in (printed := project.run(append, "run", "--full-refresh", "--select", "pages")), printed
    assert "incremental strategy provided: merge" in project.run(merge, "run", "--select", "pages")
    assert lake.shown() == {"home": 9, "news": 2, "dbt": 7}
    assert "ERROR=0" in (printed := project.run(replace, "run", "--select", "pages")), printed
    assert lake.shown() == {"home": 9, "dbt": 7}
    version = lake.table.version
    for config, *more in ((table,), (append.removesuffix(", full_refresh=false"), "--full-refresh")):
        beeline(lake, address, "-e", f"DROP TABLE pages; {MADE}")
        assert "ERROR=0" in (printed := project.run(config, "run", *more, "--select", "pages")), printed
        assert "parquet" in beeline(lake, address, "-e", "DESCRIBE EXTENDED pages").lower()
    assert Table(lake.table.uri).version == version
