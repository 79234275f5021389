"""The basic commands."""

from __future__ import annotations

from dataclasses import asdict
from datetime import timedelta
from enum import StrEnum
from typing import Annotated, Any

import typer

import crdt_mor as mor
from crdt_mor.cli import inputs, render
from crdt_mor.cli.history import (
    for_programs,
    handed_over_text,
    recent_commits,
    recent_commits_text,
    writers,
    writers_text,
)
from crdt_mor.cli.options import A_PARTITION, AsOf, Uri
from crdt_mor.cli.reads import unopened_text
from crdt_mor.cli.settings import declared, document
from crdt_mor.ground.late_imports import pl
from crdt_mor.model.policies import words_of_bytes, words_of_ms


class Rewrite(StrEnum):
    order = "order"


class By(StrEnum):
    partitions = "partition"


def _ttl_text(ttl: str | tuple[str, timedelta] | None) -> str | None:
    return f"{ttl[0]}={words_of_ms(ttl[1] // timedelta(milliseconds=1))}" if isinstance(ttl, tuple) else ttl


def schema(uri: Uri) -> None:
    """List the columns with their types, roles and payloads.

    The JSON output is valid input of create --schema, unless a column is a struct or a map.

    Example: crdt-mor schema events --output json
    """
    table = inputs.opened(uri)
    config = table.config
    if render.is_json():
        render.document(
            {
                "columns": {field.name: str(field.type) for field in table.schema},
                "key": list(config.key),
                "partition_by": [*map(str, config.partition_by)],
                "ordering": config.ordering,
                "merge": config.merge,
                "ttl": _ttl_text(config.ttl),
                "payloads": dict(config.payloads),
                "comments": table.inspect.comments(),
                "rules": document(table.rules),
            }
        )
        return
    roles: dict[str, list[str]] = {name: [] for name in table.schema.names}
    for role, names in (("key", config.key), ("partition", config.partition_sources)):
        for name in names:
            roles[name].append(role)
    if config.ordering in roles:
        roles[config.ordering].append("ordering")
    for name, payload in config.payloads.items():
        roles[name].append(payload)
    if config.ttl is not None:
        roles[config.ttl if isinstance(config.ttl, str) else config.ttl[0]].append(f"ttl {_ttl_text(config.ttl)}")
    said = table.inspect.comments()
    head = ["column", "type", "role", *(["comment"] if said else [])]
    for name in table.rules.not_null:
        roles[name].append("not null")
    for name, value in table.rules.default.items():
        roles[name].append(f"default {value}")
    rows = [(field.name, str(field.type), ", ".join(roles[field.name])) for field in table.schema]
    render.table(head, [(*row, said.get(row[0], "")) if said else row for row in rows], kept=["column"])


def show(uri: Uri) -> None:
    """Describe a table: key, merge, rows, files, pending writes and other readers.

    Example: crdt-mor show events
    """
    table = inputs.opened(uri)
    config, files, timeline = table.config, table.inspect.files(), pl.DataFrame(table.inspect.timeline())
    now = table.scan()
    kinds = pl.DataFrame(files)["kind"].to_list()
    states = timeline["state"].to_list()
    said = declared(table)
    logs = len(kinds) - kinds.count("base")
    unopened = now.unopened
    pairs: dict[str, object] = {
        "table": config.name,
        "uri": uri,
        **said,
        **_rows(now),
        "unopened": unopened,
        "columns": {field.name: str(field.type) for field in table.schema},
        "commits": states.count("completed"),
        "recent_commits": recent_commits(timeline),
        "handed_over": table.inspect.handed_over(),
        "migration": None if (migration := table.inspect.migration()) is None else asdict(migration),
        "pending_writes": states.count("pending"),
        "writers": writers(table),
        "stable_before": table.scan(consistency="stable").as_of if "pending" in states else None,
        "open_plans": states.count("planned"),
        "base_files": kinds.count("base"),
        "log_files": logs,
        "bytes": sum(files["bytes"].to_pylist()),
        "other_readers": table.inspect.other_readers(),
    }
    if render.is_json():
        render.document(pairs)
        return
    columns = ", ".join(f"{name} {kind}" for name, kind in pairs.pop("columns").items())  # type: ignore[attr-defined]
    and_unopened = f", {unopened_text(unopened)}" if unopened else ""
    text = {
        **pairs,
        "key": ", ".join(config.key),
        "partition_by": ", ".join(map(str, config.partition_by)) or "-",
        "properties": ", ".join(f"{name}={value}" for name, value in table.properties.items()) or "-",
        "rules": "; ".join(said["rules"]) or "-",
        "rows": "-" if pairs["rows"] is None else f"{pairs['rows']:,}{and_unopened}",
        "recent_commits": recent_commits_text(pairs["recent_commits"]),  # type: ignore[arg-type]
        "handed_over": handed_over_text(table) or "-",
        "migration": migration or "-",
        "writers": writers_text(pairs["writers"]),  # type: ignore[arg-type]
        "stable_before": _held_back(pairs["stable_before"]),
        "columns": columns,
        "bytes": words_of_bytes(int(str(pairs["bytes"]))),
    }
    for name in ("unopened", "damage") if pairs["damage"] is None else ("unopened",):
        del text[name]
    render.facts({name.replace("_", " "): value for name, value in text.items()})


def _rows(scan: mor.Scan) -> dict[str, object]:
    try:
        return {"rows": scan.count(), "damage": None}
    except (mor.errors.FormatError, mor.SnapshotExpiredError) as error:
        return {"rows": None, "damage": str(error)}


def timeline(
    uri: Uri,
    since: Annotated[str | None, typer.Option(metavar="T")] = None,
    pending: bool = False,
    limit: Annotated[int | None, typer.Option(metavar="N", min=0)] = None,
) -> None:
    """List instants by requested time, with state, action and rows.

    Example: crdt-mor timeline events --pending

    Args:
        since: Only instants open or completed after T, as in cat --as-of.
        pending: Only pending writes and open plans.
        limit: Only the newest N.
    """
    instants = pl.DataFrame(inputs.opened(uri).inspect.timeline(since=inputs.point(since, "--since")))
    if pending:
        instants = instants.filter(pl.col("state").is_in(["pending", "planned"]))
    shown = instants if limit is None else instants.tail(limit)
    _print_frame(shown, kept=["requested_at", "version"])


def files(
    uri: Uri,
    as_of: AsOf = None,
    partitions: Annotated[
        list[str] | None,
        typer.Option("--partition", metavar="P", help=f"Only this partition: {A_PARTITION}. May be repeated."),
    ] = None,
    by: Annotated[By | None, typer.Option(help="Sums instead of files; rows are counted before the merge.")] = None,
) -> None:
    """List the files of a snapshot by file group: base files, logs, carries.

    Example: crdt-mor files events
    """
    inspect = inputs.opened(uri).inspect
    listed = inspect.files if by is None else inspect.partitions
    found = pl.DataFrame(listed(inputs.point(as_of, "--as-of"), partitions=partitions or None))
    _print_frame(found, kept=["path" if by is None else "partition"])


def compact(
    uri: Uri,
    plan_only: bool = False,
    log_files_min: Annotated[int, typer.Option(metavar="N", min=1)] = 1,
    logs_only: bool = False,
    rewrite: Rewrite | None = None,
) -> None:
    """Merge log files into base files, safely beside writers and readers.

    Example: crdt-mor compact events

    Args:
        plan_only: Schedule a plan that a later run executes.
        log_files_min: Only file groups with at least N log files.
        logs_only: Merge logs only with each other; base files stay as they are.
        rewrite: order: also rewrite base files with another order than the table's.
    """
    maintenance = inputs.opened(uri).maintenance
    chosen: dict[str, Any] = {"log_files_min": log_files_min, "logs_only": logs_only}
    if rewrite is not None:
        chosen["rewrite"] = rewrite.value
    if plan_only:
        plan = maintenance.plans.schedule(**chosen)
        shown = plan and {"barrier": plan.barrier, "file_groups": len(plan.file_groups), "pending": plan.pending}
        render.result({"plan": shown}, f"scheduled {plan}" if plan else "nothing to compact")
        return
    done = maintenance.compact(**chosen)
    text = "\n".join(map(_compacted, done)) or "nothing to compact"
    render.result({"compactions": [asdict(compacted) for compacted in done]}, text)


# --- inside -----------------------------------------------------------------------------------------------------------


def _compacted(done: mor.results.Compacted) -> str:
    groups = f"compacted {done.barrier}: {done.file_groups} file groups"
    if done.logs_only:
        alone = "" if done.logs_only == done.file_groups else f" of {done.logs_only}"
        return f"{groups}, only logs{alone}: {done.carried} rows and deletes, {words_of_bytes(done.bytes)}"
    carried = f", {done.carried} rows carried for pending writes" if done.carried else ""
    return f"{groups}, {done.rows} rows, {words_of_bytes(done.bytes)}{carried}"


def _held_back(stable_before: object) -> str:
    if stable_before is None:
        return "- (all commits are stable)"
    return f"{stable_before}, because the write that began then is pending"


def _print_frame(frame: pl.DataFrame, kept: list[str]) -> None:
    if render.is_json():
        render.lines(for_programs(row) for row in frame.iter_rows(named=True))
        return
    numbers = [name for name, kind in frame.schema.items() if kind.is_numeric()]
    shown = ({**row, **{n: "" for n in frame.columns if row[n] is None}} for row in frame.iter_rows(named=True))
    render.table(frame.columns, (list(row.values()) for row in shown), numbers, kept)
