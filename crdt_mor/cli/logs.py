"""Log records of a command on stderr: `--log-level` and `--log-format`."""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from enum import StrEnum
from typing import Annotated

import typer

from crdt_mor.cli import render


class Level(StrEnum):
    debug = "debug"
    info = "info"
    warning = "warning"
    error = "error"


LogLevel = Annotated[Level | None, typer.Option("--log-level", help="Print log records to stderr.")]
LogFormat = Annotated[
    render.Output | None, typer.Option("--log-format", help="Of log records; json: one line each, with all facts.")
]


class _Lines(logging.Formatter):
    """A JSON object per record, with the facts of the event."""

    def format(self, record: logging.LogRecord) -> str:
        said: dict[str, object] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(), "logger": record.name, "message": record.getMessage(),
            **getattr(record, "crdt_mor", {}),
        }  # fmt: skip
        if record.exc_info:
            said["traceback"] = self.formatException(record.exc_info)
        return render.as_json(said)


_TEXT = "%(asctime)s %(levelname)s %(name)s: %(message)s"


@contextmanager
def logged(level: Level | None, form: render.Output | None) -> Iterator[None]:
    """Print the log records of crdt_mor during the block, if an option is given."""
    if level is None and form is None:
        yield
        return
    logger, handler = logging.getLogger("crdt_mor"), logging.StreamHandler(sys.stderr)
    handler.setFormatter(_Lines() if form is render.Output.json else logging.Formatter(_TEXT))
    before = logger.level
    logger.setLevel((level or Level.info).upper())
    logger.addHandler(handler)
    try:
        yield
    finally:
        logger.removeHandler(handler)
        logger.setLevel(before)
