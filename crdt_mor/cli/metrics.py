"""`crdt-mor metrics`: the state of tables as Prometheus text, once or from a server."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, fields
from functools import partial
from threading import Thread
from typing import TYPE_CHECKING, Annotated, Final

import typer

import crdt_mor as mor
from crdt_mor.cli import failures, inputs, render
from crdt_mor.cli.maintain import Uris
from crdt_mor.cli.stopping import until_stopped
from crdt_mor.cli.watching import listed, say_left_off
from crdt_mor.cli.wording import in_options
from crdt_mor.ground.clock import SystemEnvironment
from crdt_mor.ground.late_imports import Late

if TYPE_CHECKING:
    import prometheus_client
    from prometheus_client import core

    _Found = Mapping[str, mor.results.Metrics | None]
    """By table; None if unreadable."""
else:
    prometheus_client = Late("prometheus_client")
    core = Late("prometheus_client.core")

PATIENCE_MS: Final = 8_000
"""Prometheus waits ten seconds for a scrape."""


def metrics(uri: Uris, listen: Annotated[str | None, typer.Option(metavar="[HOST]:PORT")] = None) -> None:
    """Print or serve the state of tables for Prometheus.

    A folder that is no table stands for the tables below it. An unreadable table has crdt_mor_up 0. Needs
    pip install 'crdt-mor[metrics]'.

    Example: crdt-mor metrics events clicks --listen :9464

    Args:
        listen: Serve the text at /metrics until Ctrl-C, such as at :9464.
    """
    _require_client()
    uris = list(dict.fromkeys(uri))
    if listen is not None:
        if render.is_json():
            raise typer.BadParameter("--listen and --output json exclude each other", param_hint="--listen")
        _serve(uris, *_address(listen))
        return
    read = _read([_Place(one) for one in uris])
    if render.is_json():
        render.lines(_line(table, found) for table, found in read.items())
    else:
        typer.echo(prometheus_client.generate_latest(_registry(lambda: read)), nl=False)
    if None in read.values():
        raise typer.Exit(failures.REFUSED)


def _line(table: str, found: mor.results.Metrics | None) -> dict[str, object]:
    return {"table": table, "up": found is not None, **({} if found is None else asdict(found))}


def _require_client() -> None:
    try:
        import prometheus_client as _  # noqa: F401
    except ImportError as error:
        raise mor.errors.UnsupportedFeatureError(
            f"this command needs Prometheus' client: pip install 'crdt-mor[metrics]'. missing={error.name}"
        ) from error


# --- the tables -------------------------------------------------------------------------------------------------------


class _Watched:
    """A table, read by one thread at a time."""

    def __init__(self, uri: str) -> None:
        self.uri = uri
        self.found: mor.results.Metrics | None = None
        self.thread = Thread(target=self._read, daemon=True)
        self._table: mor.Table | None = None
        self.said = ""

    def begin(self) -> None:
        if not self.thread.is_alive():
            self.found = None
            self.thread = Thread(target=self._read, daemon=True)
            self.thread.start()

    def _read(self) -> None:
        try:
            self._table = self._table or inputs.opened(self.uri)
            self.found, self.said = self._table.inspect.metrics(), ""
        except Exception as error:  # noqa: BLE001  the other tables are read in any case
            self._table = None
            self._say(in_options(failures.describe(error), ["uri"]))

    def _say(self, text: str) -> None:
        if text != self.said:  # once, and not at each scrape
            render.note(f"error: {self.uri}: {text}")
        self.said = text


class _Place:
    """A table, or the tables below a folder, listed by one thread at a time."""

    def __init__(self, uri: str) -> None:
        self._uri = uri
        self._listed: mor.results.TableList | None = None
        self.tables = {uri: _Watched(uri)}
        self.thread = Thread(target=self._list, daemon=True)

    def begin(self) -> None:
        if self._listed is not None:
            self._begin_tables()
        if not self.thread.is_alive():
            self.thread = Thread(target=self._list, daemon=True)
            self.thread.start()

    def _list(self) -> None:
        up = [one for one in self._listed.tables if not self.tables[one.uri].said] if self._listed else []
        with suppress(mor.CrdtMorError, OSError):
            found = listed(self._uri, up)
            if found.left_off and not (self._listed and self._listed.left_off):
                say_left_off(self._uri, found)
            uris = [one.uri for one in found.tables] or [self._uri]
            self.tables = {uri: self.tables.get(uri) or _Watched(uri) for uri in uris}
            self._listed = found if found.tables else None
        self._begin_tables()

    def _begin_tables(self) -> None:
        for table in self.tables.values():
            table.begin()


def _read(places: Sequence[_Place]) -> _Found:
    environment = SystemEnvironment()
    ends_ms = environment.now_ms() + PATIENCE_MS

    def left_s() -> float:
        return max(0, ends_ms - environment.now_ms()) / 1000

    for place in places:
        place.begin()
    for place in places:
        place.thread.join(left_s())
    tables = {uri: table for place in places for uri, table in place.tables.items()}
    for table in tables.values():
        table.thread.join(left_s())
    return {uri: None if table.thread.is_alive() else table.found for uri, table in tables.items()}


# --- the text ---------------------------------------------------------------------------------------------------------


def families(read: _Found) -> Iterator[core.Metric]:
    up = core.GaugeMetricFamily("crdt_mor_up", "1 if the table could be read.", labels=["table"])
    for table, found in read.items():
        up.add_metric([table], float(found is not None))
    yield up
    for field in fields(mor.results.Metrics):
        if field.metadata:
            yield _family(field.name, field.metadata["help"], field.metadata["label"], read)


def _family(name: str, help: str, label: str, read: _Found) -> core.Metric:
    kind = core.CounterMetricFamily if name.endswith("_total") else core.GaugeMetricFamily
    family = kind(f"crdt_mor_{name}", help, labels=["table", *([label] if label else [])])
    for table, found in read.items():
        value = None if found is None else getattr(found, name)
        if value is not None and label:
            for key, number in value.items():
                family.add_metric([table, key], float(number))
        elif value is not None:
            family.add_metric([table], float(value))
    return family


class _Collector:
    def __init__(self, read: Callable[[], _Found]) -> None:
        self._read = read

    def collect(self) -> Iterator[core.Metric]:
        return families(self._read())


def _registry(read: Callable[[], _Found]) -> prometheus_client.CollectorRegistry:
    registry = prometheus_client.CollectorRegistry()
    registry.register(_Collector(read))
    return registry


# --- the server -------------------------------------------------------------------------------------------------------


def _address(text: str) -> tuple[str, int]:
    host, colon, port = text.rpartition(":")
    if not colon or not port.isascii() or not port.isdigit() or int(port) > 65535:
        raise typer.BadParameter(f"pass [HOST]:PORT, such as :9464. got={text!r}", param_hint="--listen")
    return host.strip("[]") or "0.0.0.0", int(port)


def _serve(uris: Sequence[str], host: str, port: int) -> None:
    registry = _registry(partial(_read, [_Place(one) for one in uris]))
    try:
        server, thread = prometheus_client.start_http_server(port, host, registry)
    except OSError as error:
        raise mor.InvalidInputError(f"cannot listen there: {error.strerror}. host={host} port={port}") from error
    render.note(f"http://{host}:{server.server_port}/metrics serves {', '.join(uris)} until Ctrl-C")
    try:
        with until_stopped("stopped"):
            thread.join()
    finally:
        server.shutdown()
