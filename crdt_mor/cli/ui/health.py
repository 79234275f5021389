"""The problems of a table, worst first, with advice."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

import polars as pl

import crdt_mor as mor
from crdt_mor.cli.history import stuck_text, writer_text
from crdt_mor.model.policies import plural, words_of_bytes

LOGS_SHARE: Final = 0.5
"""Bytes of logs per byte of base files above which reads are slow."""

LOGS_MANY: Final = 30
"""Log files of a file group worth a note."""

LOGS_SLOW: Final = 100
"""Log files of a file group above which reads are slow, since each file is opened."""

_SMALL_UPKEEP: Final = frozenset({"sweep", "tokens", "hints"})
"""Services that neither readers nor writers notice."""

SMALL_BYTES: Final = 4 << 20

SMALL_MANY: Final = 100
"""Small file groups worth a note."""

_ORDER: Final = {"wrong": 0, "note": 1, "fine": 2}


@dataclass(frozen=True)
class Sign:
    state: Literal["wrong", "note", "fine"]
    check: str
    text: str
    advice: str = ""


def health_of(
    table: mor.Table,
    uri: str,
    pending: Sequence[Mapping[str, Any]],
    groups: pl.DataFrame,
    upkeep: Sequence[Mapping[str, Any]] | None,
) -> list[Sign]:
    """Return the problems, then the notes, then the healthy items.

    uri: an address that works in commands from any folder.
    """
    due = {one["service"] for one in upkeep or () if one["state"] == "due"}
    signs = [
        *_writers(pending, uri),
        *([] if upkeep is None else _plans(upkeep, uri)),
        *_posts(table),
        *_logs(groups, uri, is_due="compaction" in due),
        *_small_files(uri, groups),
        *_hudi(table),
    ]
    return sorted(signs, key=lambda sign: _ORDER[sign.state])


def _writers(pending: Sequence[Mapping[str, Any]], uri: str) -> Iterator[Sign]:
    for writer in pending:
        if writer["stuck"]:
            yield Sign("wrong", "stuck writer", writer_text(writer), stuck_text(writer, uri))
        else:
            yield Sign("note", "pending write", writer_text(writer))
    if not pending:
        yield Sign("fine", "writers", "no write is pending")


def _plans(upkeep: Sequence[Mapping[str, Any]], uri: str) -> Iterator[Sign]:
    failed = [one for one in upkeep if one["state"] in ("failed", "refused")]
    for one in failed:
        yield Sign("wrong" if one["state"] == "failed" else "note", one["service"].replace("_", " "), one["text"])
    due = [one["service"].replace("_", " ") for one in upkeep if one["state"] == "due"]
    if due and {*due} <= _SMALL_UPKEEP:
        yield Sign("fine", "upkeep", f"due: {', '.join(due)}; writers do this")
    elif due:
        said = f"run crdt-mor maintain {uri}, for example from cron"
        yield Sign("note", "upkeep", f"due: {', '.join(dict.fromkeys(due))}", said)
    elif not failed:
        yield Sign("fine", "upkeep", "nothing is due")


def _posts(table: mor.Table) -> Iterator[Sign]:
    states = table.inspect.posts()["state"].to_pylist()
    old, waiting = states.count("old"), states.count("waiting")
    if old:
        yield Sign(
            "note", "posts",
            f"{plural(old, 'small write')} {'has' if old == 1 else 'have'} waited for over a minute and "
            "will never be taken: the processes died, or posted again",
            "A sweep removes them. A running writer learns the outcome itself.",
        )  # fmt: skip
    elif waiting:
        yield Sign("note", "posts", f"{plural(waiting, 'small write')} about to be committed in a group")
    else:
        yield Sign("fine", "posts", "no small write waits")


def _logs(groups: pl.DataFrame, uri: str, *, is_due: bool) -> Iterator[Sign]:
    base, logs = int(groups["base_bytes"].sum()), int(groups["log_bytes"].sum())
    most = max(groups["logs"].to_list(), default=0)
    said = (
        f"{plural(int(groups['logs'].sum()), 'log file')} of {words_of_bytes(logs)} beside {words_of_bytes(base)} of "
        f"base files; {most:,} in one file group at most"
    )
    due = "this is due in crdt-mor maintain" if is_due else "the table's policies do not require this yet"
    advice = f"crdt-mor compact {uri} merges them now; {due}."
    if (logs > LOGS_SHARE * base and logs > SMALL_BYTES) or most >= LOGS_SLOW:
        yield Sign("wrong", "reads are slow", f"{said}: every read merges them", advice)
    elif most >= LOGS_MANY:
        yield Sign("note", "many log files", said, advice)
    else:
        yield Sign("fine", "log files", said)


def _small_files(uri: str, groups: pl.DataFrame) -> Iterator[Sign]:
    small = groups.filter(pl.col("base_bytes") + pl.col("log_bytes") < SMALL_BYTES).height
    if small < SMALL_MANY:
        return
    yield Sign(
        "note", "small files",
        f"{small:,} of {plural(groups.height, 'file group')} are smaller than {words_of_bytes(SMALL_BYTES)}: a scan "
        "opens all of them",
        f"crdt-mor migrate {uri} ELSEWHERE --buckets N moves the table to fewer file groups, beside its writers",
    )  # fmt: skip


def _hudi(table: mor.Table) -> Iterator[Sign]:
    late = table.inspect.unprojected().num_rows
    if late:
        yield Sign(
            "note", "Hudi's readers",
            f"{plural(late, 'commit')} not yet in Hudi's timeline",
            "The next write adds them.",
        )  # fmt: skip
    said = table.inspect.other_readers()
    yield Sign("note" if said.startswith("no other engine") else "fine", "other engines", said)
    if (migration := table.inspect.migration()) is not None:
        yield Sign("note", "migration", str(migration))
    since = table.inspect.handed_over()
    if since is not None:
        yield Sign("note", "handed over", f"handed over to Hudi's writers since {since:%Y-%m-%d %H:%M} UTC")
