"""`crdt-mor history`, and the texts about writers in other commands."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Annotated, Any

import typer

import crdt_mor as mor
from crdt_mor.cli import inputs, render
from crdt_mor.cli.options import Uri
from crdt_mor.ground.late_imports import pa, pl
from crdt_mor.model.policies import plural

HISTORY_ROWS = 20
MESSAGES_MAX = 3
DECLARED_MAX = 3
RECENT_COMMITS = 100


def history(
    uri: Uri,
    limit: Annotated[
        int | None, typer.Option(metavar="N", min=0, help=f"The newest N; default {HISTORY_ROWS} as text, all as JSON.")
    ] = None,
    since: Annotated[str | None, typer.Option(metavar="T")] = None,
    until: Annotated[str | None, typer.Option(metavar="T")] = None,
    by: Annotated[str | None, typer.Option(metavar="APP")] = None,
) -> None:
    """List the commits, newest first, with duration, writer and overlaps.

    --as-of, --since and restore --to accept the version. As a version may contain several commits, overlapping commits
    are listed by ordinal.

    Example: crdt-mor history events --limit 5

    Args:
        since: Only commits visible after T, as in cat --as-of.
        until: Only commits visible by T.
        by: Only commits with a write of this program.
    """
    table = inputs.opened(uri)
    asked = {"since": inputs.point(since, "--since"), "until": inputs.point(until, "--until")}

    def commits(most: int | None) -> pa.Table:
        return table.history(most, **asked, by=by)

    if render.is_json():
        render.lines(for_programs(row) for row in commits(limit).to_pylist(maps_as_pydicts="strict"))
        return
    shown = HISTORY_ROWS if limit is None else limit
    rows = commits(shown + 1).to_pylist()
    names = ["ordinal", "version", "completed", "took", "what", "rows", "deletes", "by", "overlaps", "message"]
    numbers = ["ordinal", "version", "took", "rows", "deletes"]
    kept = ["ordinal", "version", "completed"]
    render.table(names, [_for_people(row) for row in rows[:shown]], numbers, kept)
    if len(rows) > shown:
        render.note(f"the newest {shown} commits; for more use --limit N")
    if (said := handed_over_text(table)) is not None:
        render.note(f"handed over {said}")


def recent_commits(timeline: pl.DataFrame) -> dict[str, int]:
    commits = timeline.drop_nulls("writes").sort("completed_at").tail(RECENT_COMMITS)["writes"]
    return {"commits": len(commits), "writes": int(commits.sum()), "groups": int((commits > 1).sum())}


def recent_commits_text(counts: Mapping[str, int]) -> str:
    """Format as `320 writes in 100 commits, 3.2 each; 17 of them hold several`."""
    writes, commits, groups = counts["writes"], counts["commits"], counts["groups"]
    if not commits:
        return "-"
    ones = f"{plural(writes, 'write')} in {plural(commits, 'commit')}"
    return (
        ones
        if not groups
        else f"{ones}, {writes / commits:.1f} each; {groups} of them hold{'s' * (groups == 1)} several"
    )


# --- writers under way ------------------------------------------------------------------------------------------------


def writers(table: mor.Table) -> list[dict[str, Any]]:
    return [for_programs(row) for row in table.inspect.pending().to_pylist(maps_as_pydicts="strict")]


def writers_text(found: Iterable[Mapping[str, Any]]) -> str:
    return "\n".join(line for writer in found for line in _writer_lines(writer)) or "-"


def writer_text(writer: Mapping[str, Any]) -> str:
    silent = writer["silent_s"]
    heard = "" if silent is None else f", silent for {_duration(timedelta(seconds=silent))}"
    said = f": {writer['message']}" if writer["message"] else ""
    touched = "".join(
        f", only {kind} {_some(writer[kind])}" for kind in ("partitions", "columns") if writer[kind] is not None
    )
    touched += "" if writer["keys"] is None else f", only rows of {plural(writer['keys'], 'key')}"
    return f"{_who(writer)}, since {_moment(writer['since'])} ({writer['requested_at']}){heard}{touched}{said}"


def _writer_lines(writer: Mapping[str, Any]) -> Iterable[str]:
    yield writer_text(writer)
    if writer["stuck"]:
        yield f"  stuck? {stuck_text(writer, 'URI')}"


def stuck_text(writer: Mapping[str, Any], uri: str) -> str:
    process = f"process {writer['pid']} on {writer['host']}" if writer["host"] else "its process"
    return (
        f"Look at {process}: if it hangs, end it. Updates and erasures wait for this write, and stable reads stop "
        f"before it. The first write or compaction after {_moment(writer['expires'])} rolls it back; to do so now: "
        f"crdt-mor rollback {uri} {writer['requested_at']}"
    )


def _some(names: Sequence[str]) -> str:
    """Format as `day=mon, day=tue and 5 more`."""
    more = len(names) - DECLARED_MAX
    return (", ".join(names[:DECLARED_MAX]) or "none") + (f" and {more} more" if more > 0 else "")


# --- forms ------------------------------------------------------------------------------------------------------------


def for_programs(row: Mapping[str, Any]) -> dict[str, Any]:
    return dict(_in_seconds(name, value) for name, value in row.items())


def _in_seconds(name: str, value: object) -> tuple[str, object]:
    if name not in ("duration", "silent"):
        return name, value
    return f"{name}_s", value.total_seconds() if isinstance(value, timedelta) else None


def _for_people(row: Mapping[str, Any]) -> list[object]:
    what = row["operation"].lower() + (" (Hudi's)" if row["adopted"] else "")
    return [
        row["ordinal"], row["version"], _moment(row["completed"]), _duration(row["duration"]), what, row["rows"],
        row["deletes"], _who(row) + others(row), _runs(row["overlaps"]), _said(row),
    ]  # fmt: skip


def others(row: Mapping[str, Any]) -> str:
    """Format further writers of a commit as ` and 3 more`."""
    more = len(row["writers"] or ()) - 1
    return f" and {more} more" if more > 0 else ""


def _said(row: Mapping[str, Any]) -> str:
    messages = dict.fromkeys(writer["message"] for writer in row["writers"] or () if writer["message"])
    return "; ".join([*messages][:MESSAGES_MAX]) + ("; …" if len(messages) > MESSAGES_MAX else "")


def _who(row: Mapping[str, Any]) -> str:
    return f"{row['application']} ({row['pid']} on {row['host']})" if row["host"] else "?"


def _moment(moment: datetime) -> str:
    return f"{moment:%Y-%m-%d %H:%M:%S} UTC"


def _duration(duration: timedelta) -> str:
    seconds = duration.total_seconds()
    if seconds < 60:
        return f"{seconds:.3f} s" if seconds < 10 else f"{seconds:.0f} s"
    minutes, seconds = divmod(round(seconds), 60)
    return f"{minutes} min {seconds} s" if minutes < 60 else f"{minutes // 60} h {minutes % 60} min"


def _runs(ordinals: Sequence[int]) -> str:
    """Format as `3, 5-9`."""
    runs: list[list[int]] = []
    for ordinal in ordinals:
        if runs and ordinal == runs[-1][1] + 1:
            runs[-1][1] = ordinal
        else:
            runs.append([ordinal, ordinal])
    return ", ".join(str(first) if first == last else f"{first}-{last}" for first, last in runs)


def handed_over_text(table: mor.Table) -> str | None:
    since = table.inspect.handed_over()
    if since is None:
        return None
    return (
        f"to Hudi's writers since {since:%Y-%m-%d %H:%M:%S} UTC: writes and maintenance here are refused until "
        "crdt-mor takeback URI"
    )
