"""The page as bytes, and the server: nothing of a table becomes markup or script, and nobody else reaches it."""

from __future__ import annotations

import http.client
import json
import re
import signal
import socket
import struct
import subprocess
import sys
from base64 import b64encode
from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path
from threading import Thread
from typing import Any

import pyarrow as pa
import pytest
from typer.testing import CliRunner

import crdt_mor as mor
from crdt_mor.cli.main import app
from crdt_mor.cli.ui import page
from crdt_mor.cli.ui.report import report_of
from crdt_mor.cli.ui.server import ServedTable, server
from tests.simulated import Simulated

EVIL = "</script><script>alert(1)</script><img src=x onerror=alert(2)>"


@pytest.fixture
def table() -> mor.Table:
    table = Simulated().create(pa.schema([("id", pa.string()), ("n", pa.int64())]), key="id", buckets=1)
    table.upsert(pa.table({"id": [EVIL, "a"], "n": [1, 2]}), commit_info={"message": EVIL, "application": EVIL})
    return table


def html(table: mor.Table) -> str:
    return page.html({**report_of(table, EVIL), "live": False, "lives": []})


def test_texts_of_a_table_never_become_markup(table: mor.Table) -> None:
    made = html(table)
    assert EVIL not in made
    assert "alert(1)" in made  # as JSON
    (data,) = re.findall(r'<script type="application/json" id="report">(.*?)</script>', made, re.DOTALL)
    assert json.loads(data)["timeline"]["commits"][0]["message"] == EVIL
    assert "<" not in data


def test_a_browser_may_run_the_scripts_of_the_page_and_no_other(table: mor.Table) -> None:
    made = html(table)
    (policy,) = re.findall(r'<meta http-equiv="Content-Security-Policy" content="([^"]*)">', made)
    allowed = set(re.findall(r"'sha256-([^']*)'", policy))
    scripts = re.findall(r"<script>(.*?)</script>", made, re.DOTALL)
    assert {b64encode(sha256(one.encode()).digest()).decode() for one in scripts} == allowed
    assert len(allowed) == 2
    assert "unsafe-eval" not in policy
    assert "script-src 'unsafe-inline'" not in policy


def test_the_page_asks_no_other_host_for_anything(table: mor.Table) -> None:
    made = html(table).replace(page.plotly_js(), "")
    assert re.findall(r"""(?:src|href)\s*=\s*["'](?!#|data:)""", made) == []
    assert "http://" not in made
    assert "https://" not in made


def test_without_plotly_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    def absent(name: str) -> Any:
        raise ModuleNotFoundError(name)

    monkeypatch.setattr("crdt_mor.cli.ui.page.resources.files", absent)
    with pytest.raises(mor.errors.UnsupportedFeatureError, match=re.escape("pip install 'crdt-mor[ui]'")):
        page.plotly_js()


# --- the server -------------------------------------------------------------------------------------------------------


@contextmanager
def running(table: mor.Table) -> Iterator[int]:
    """A server of the page; its port."""
    made = server(ServedTable(table, "t"), 0)
    thread = Thread(target=made.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield made.server_port
    finally:
        made.shutdown()
        thread.join()
        made.server_close()


def got(port: int, path: str, **headers: str) -> tuple[int, str]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    try:
        connection.request("GET", path, headers=headers)
        answer = connection.getresponse()
        return answer.status, answer.read().decode()
    finally:
        connection.close()


def test_the_server_answers_for_the_page_and_for_lives_and_nothing_else(table: mor.Table) -> None:
    first = table.version
    with running(table) as port:
        status, made = got(port, "/")
        assert (status, '"live": true' in made) == (200, True)
        status, life = got(port, "/why?key=a&column=n")
        assert (status, json.loads(life)["lines"][0]["result"]) == (200, {"n": "2"})
        table.upsert(pa.table({"id": ["a"], "n": [7]}))
        assert json.loads(got(port, "/why?key=a")[1])["lines"][-1]["result"]["n"] == "7"
        assert len(json.loads(got(port, f"/why?key=a&as_of={first}")[1])["lines"]) == 1
        for path in ("/etc/passwd", "/../page.py", "/why/", "/favicon.ico"):
            assert got(port, path)[0] == 404


def test_the_server_answers_for_the_rows_between_two_moments(table: mor.Table) -> None:
    with running(table) as port:
        status, answer = got(port, f"/diff?before={table.version - 1}&after=now")
        assert (status, json.loads(answer)["counts"]) == (200, {"inserted": 2, "updated": 0, "deleted": 0})


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ("why?key=a&column=nope", "nope"),
        ("why?key=a&as_of=never", "as_of"),
        ("why?key=a&as_of=999", "version"),
        ("diff?before=never&after=now", "before"),
        ("diff?before=1", "after"),
        ("diff?before=1&after=999", "version"),
    ],
)
def test_a_question_that_is_wrong_is_answered_by_its_error(table: mor.Table, asked: str, said: str) -> None:
    with running(table) as port:
        status, answer = got(port, f"/{asked}")
        assert (status, said in json.loads(answer)["error"]) == (200, True)


@pytest.mark.parametrize("host", ["evil.example", "evil.example:80", "127.0.0.1", "localhost:1"])
def test_a_page_of_another_name_reads_nothing(table: mor.Table, host: str) -> None:
    """DNS rebinding: a name of the Internet that leads to this machine."""
    with running(table) as port:
        for path in ("/", "/why?key=a"):
            status, said = got(port, path, Host=host)
            assert (status, EVIL in said or "lines" in said) == (403, False)
        assert got(port, "/why?key=a", Host=f"localhost:{port}")[0] == 200


@pytest.mark.parametrize(
    ("site", "status"), [("cross-site", 403), ("same-site", 403), ("same-origin", 200), ("none", 200)]
)
def test_a_page_of_another_site_asks_for_nothing(table: mor.Table, site: str, status: int) -> None:
    """A question as of a moment may decide it, by an event of the timeline."""
    with running(table) as port:
        assert got(port, "/why?key=a", **{"Sec-Fetch-Site": site})[0] == status


def test_a_request_that_is_broken_is_answered_and_one_that_is_cut_off_is_no_news(
    table: mor.Table, capfd: pytest.CaptureFixture[str]
) -> None:
    with running(table) as port:
        with socket.create_connection(("127.0.0.1", port)) as odd:
            odd.sendall(b"GET http://[ HTTP/1.1\r\n\r\n")
            assert b" 400 " in odd.recv(4096)
        with socket.create_connection(("127.0.0.1", port)) as cut:
            cut.sendall(b"GET / HTTP/1.1\r\nHost: 127.0.0.1:%d\r\n\r\n" % port)
            cut.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        assert got(port, "/why?key=a")[0] == 200
    assert capfd.readouterr() == ("", "")


def test_what_is_not_asked_by_get_is_refused(table: mor.Table) -> None:
    with running(table) as port:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
        connection.request("POST", "/why?key=a")
        assert connection.getresponse().status == 501
        connection.close()


def test_the_server_listens_on_this_machine_alone(table: mor.Table) -> None:
    made = server(ServedTable(table, "t"), 0)
    assert made.server_address[0] == "127.0.0.1"
    made.server_close()


def test_no_button_of_a_chart_leads_to_another_host() -> None:
    """plotly has buttons that upload a chart: the page names those that it shows."""
    script = "".join((Path(page.__file__).parent / name).read_text() for name in page.SCRIPTS)
    (named,) = re.findall(r"modeBarButtons: \[\[(.*?)\]\]", script)
    allowed = {"zoom2d", "pan2d", "zoomIn2d", "zoomOut2d", "autoScale2d", "toImage"}
    assert set(re.findall(r'"(\w+)"', named)) == allowed
    assert "displaylogo: false" in script


def test_a_port_that_is_taken_is_named(uri: Path, table: mor.Table) -> None:
    with running(table) as port:
        done = CliRunner().invoke(app, ["ui", str(uri), "--port", str(port)])
    assert (done.exit_code, f"port={port}" in done.stderr) == (1, True)


# --- the command ------------------------------------------------------------------------------------------------------


@pytest.fixture
def uri(tmp_path: Path) -> Path:
    table = mor.Table.create(tmp_path / "t", pa.schema([("id", pa.string()), ("n", pa.int64())]), key="id", buckets=1)
    table.upsert(pa.table({"id": ["a"], "n": [2**60 + 1]}))
    return tmp_path / "t"


def test_one_file_has_the_page_and_the_lives_asked_for(uri: Path, tmp_path: Path) -> None:
    done = CliRunner().invoke(app, ["ui", str(uri), "--html", str(tmp_path / "t.html"), "--key", "a"])
    assert (done.exit_code, done.stdout, "wrote" in done.stderr) == (0, "", True)
    made = (tmp_path / "t.html").read_text()
    (data,) = re.findall(r'id="report">(.*?)</script>', made, re.DOTALL)
    told = json.loads(data)
    assert told["live"] is False
    assert [life["text"] for life in told["lives"]] == ["a"]
    assert told["lives"][0]["lines"][0]["result"] == {"id": "a", "n": str(2**60 + 1)}


def test_a_page_that_cannot_be_written_leaves_the_one_before(uri: Path, tmp_path: Path) -> None:
    (tmp_path / "there").mkdir()
    done = CliRunner().invoke(app, ["ui", str(uri), "--html", str(tmp_path / "there")])
    assert (done.exit_code, "there" in done.stderr) == (1, True)
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".")] == []


def test_json_has_what_the_page_shows(uri: Path) -> None:
    done = CliRunner().invoke(app, ["ui", str(uri), "--output", "json"])
    told = json.loads(done.stdout)
    assert (told["overview"]["rows"], told["overview"]["key"]) == (1, ["id"])
    assert {sign["state"] for sign in told["health"]} <= {"fine", "note"}


@pytest.mark.parametrize(
    ("options", "said"),
    [(["--key", "a"], "--html FILE"), (["--html", "x", "--output", "json"], "exclude"), (["--port", "70000"], "port")],
)
def test_options_that_do_not_go_together_are_refused(uri: Path, options: list[str], said: str) -> None:
    done = CliRunner().invoke(app, ["ui", str(uri), *options])
    assert (done.exit_code, said in " ".join(done.output.replace("│", " ").split())) == (2, True)


@pytest.mark.slow
def test_the_command_serves_until_it_is_asked_to_end(uri: Path) -> None:
    words = [sys.executable, "-m", "crdt_mor", "ui", str(uri)]
    with subprocess.Popen(words, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        line = process.stderr.readline()
        match = re.fullmatch(r"http://127\.0\.0\.1:(\d+)/ shows .* until Ctrl-C\n", line)
        assert match, line
        assert got(int(match[1]), "/why?key=a")[0] == 200
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0
        assert "Traceback" not in process.stderr.read()
