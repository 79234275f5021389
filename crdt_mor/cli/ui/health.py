"""What is wrong with a table, or will be, the worst first; and what to do about it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

import polars as pl

import crdt_mor as mor
from crdt_mor.cli.history import stuck_text, writer_text
from crdt_mor.model.policies import plural, words_of_bytes

LOGS_SHARE: Final = 0.5
"""The bytes of logs beside those of base files from which a read is said to be slow for want of a compaction."""

LOGS_MANY: Final = 30
"""The log files of one file group from which they are worth a word."""

LOGS_SLOW: Final = 100
"""The log files of one file group from which a read is said to be slow, as each of them is opened."""

_SMALL_UPKEEP: Final = frozenset({"sweep", "tokens", "hints"})
"""Services that no reader and no writer feels the lack of."""

SMALL_BYTES: Final = 4 << 20
"""The size of a base file below which it is small."""

SMALL_MANY: Final = 100
"""How many small file groups are worth a word."""

_ORDER: Final = {"wrong": 0, "note": 1, "fine": 2}


@dataclass(frozen=True)
class Sign:
    """One thing that was looked at. state: `wrong` wants somebody to act, `note` to know. advice: "" where none is."""

    state: Literal["wrong", "note", "fine"]
    check: str
    said: str
    advice: str = ""


def health_of(
    table: mor.Table,
    uri: str,
    pending: Sequence[Mapping[str, Any]],
    groups: pl.DataFrame,
    upkeep: Sequence[Mapping[str, Any]] | None,
) -> list[Sign]:
    """What is wrong, then what is worth knowing, then what is fine.

    uri: the table's address as commands take it anywhere on this machine. pending: as `history.writers` has them.
    groups: as `report.file_groups` has them. upkeep: what `maintain` would do; None where it is not known.
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
            yield Sign("note", "writer under way", writer_text(writer))
    if not pending:
        yield Sign("fine", "writers", "no write is under way")


def _plans(upkeep: Sequence[Mapping[str, Any]], uri: str) -> Iterator[Sign]:
    failed = [one for one in upkeep if one["state"] in ("failed", "refused")]
    for one in failed:
        yield Sign("wrong" if one["state"] == "failed" else "note", one["service"].replace("_", " "), one["said"])
    due = [one["service"].replace("_", " ") for one in upkeep if one["state"] == "due"]
    if due and {*due} <= _SMALL_UPKEEP:
        yield Sign("fine", "upkeep", f"due: {', '.join(due)}, which writers do in passing")
    elif due:
        said = f"crdt-mor maintain {uri} does it; from cron it does whatever is due"
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
            "will not be taken any more: their processes died, or post them anew",
            "A sweep removes them. A writer whose process lives learns the outcome by itself.",
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
    due = "which crdt-mor maintain does, as it is due" if is_due else "which the table's policies do not ask for yet"
    advice = f"crdt-mor compact {uri} merges them now, {due}."
    if (logs > LOGS_SHARE * base and logs > SMALL_BYTES) or most >= LOGS_SLOW:
        yield Sign("wrong", "reads are slow", f"{said}: each reader merges them", advice)
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
        f"{small:,} of {plural(groups.height, 'file group')} have less than {words_of_bytes(SMALL_BYTES)}: a scan "
        "opens each of them",
        f"crdt-mor migrate {uri} ELSEWHERE --buckets N moves the table to fewer file groups, beside its writers",
    )  # fmt: skip


def _hudi(table: mor.Table) -> Iterator[Sign]:
    late = table.inspect.unprojected().num_rows
    if late:
        yield Sign(
            "note", "Hudi's readers",
            f"{plural(late, 'commit')} that Hudi's readers are not told of yet",
            "The next write tells them.",
        )  # fmt: skip
    said = table.inspect.other_readers()
    yield Sign("note" if said.startswith("no other engine") else "fine", "other engines", said)
    if (migration := table.inspect.migration()) is not None:
        yield Sign("note", "migration", str(migration))
    if table.handed_over is not None:
        yield Sign("note", "handed over", f"Hudi's writers have the table since {table.handed_over:%Y-%m-%d %H:%M} UTC")
