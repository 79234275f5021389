"""`crdt-mor changes` and `diff`."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Sequence
from dataclasses import asdict
from datetime import timedelta
from pathlib import Path
from typing import Annotated, Any

import typer

import crdt_mor as mor
from crdt_mor.cli import inputs, render
from crdt_mor.cli.failures import BROKEN
from crdt_mor.cli.options import AsOf, Columns, How, Limit, Uri
from crdt_mor.cli.rows import Format, checked_format, most_rows, send
from crdt_mor.cli.whole_files import put_whole


def changes(
    uri: Uri,
    since: Annotated[str | None, typer.Option(metavar="C")] = None,
    checkpoint: Annotated[Path | None, typer.Option(metavar="FILE")] = None,
    reader: Annotated[str | None, typer.Option(metavar="NAME")] = None,
    images: bool = False,
    raw: bool = False,
    stable: bool = False,
    expired: bool = False,
    follow: Annotated[bool, typer.Option("--follow", "-f")] = False,
    every: Annotated[float, typer.Option(metavar="SECONDS", min=0.01)] = 1.0,
    columns: Columns = None,
    limit: Limit = None,
    format: How = Format.table,
) -> None:
    """Print the changes of commits: changed keys as they are now, --images or --raw.

    Example: crdt-mor changes events --checkpoint events.checkpoint --format jsonl

    Args:
        since: A checkpoint, or a moment as in cat --as-of; default: everything.
        checkpoint: Continue from the checkpoint in FILE, and store the next; all rows are printed.
        reader: Continue at this reader's checkpoint, which the table keeps; all rows are printed.
        images: By commit, rows before and after.
        raw: By commit, rows as written.
        stable: Stop before the oldest pending write.
        expired: Also rows that expire, as deletes (create --ttl).
        follow: Wait for more changes, like tail -f.
        every: How often --follow looks.
    """
    form = checked_format(format)
    if follow and form is not Format.jsonl:
        raise typer.BadParameter("--follow needs --format jsonl", param_hint="--follow")
    if checkpoint is not None and since is not None:
        raise typer.BadParameter("the file contains the start: omit --since", param_hint="--checkpoint")
    if checkpoint is not None and reader is not None:
        raise typer.BadParameter("--reader and --checkpoint exclude each other", param_hint="--reader")
    is_noted = reader is not None or checkpoint is not None
    if limit is not None and (is_noted or follow):
        raise typer.BadParameter("--reader, --checkpoint and --follow print all rows: omit it", param_hint="--limit")
    start = inputs.point(since, "--since", checkpoint=True)
    if checkpoint is not None and checkpoint.exists():
        start = checkpoint.read_text().strip()
    table = inputs.opened(uri)
    options: dict[str, Any] = {"columns": inputs.split_names(columns), "images": images, "raw": raw}
    options |= {"consistency": "stable" if stable else "latest", "expired": expired, "reader": reader}
    pause = timedelta(seconds=every)
    if follow:
        from crdt_mor.readers.follow import follow as following

        windows = following(table, start, every=pause, **options)
    else:
        windows = iter([table.changes(start, **options)])
    most = None if is_noted else most_rows(limit, form)
    for window in windows:
        is_whole = send(window, most, form, table.config.key)
        sys.stdout.flush()
        if reader is not None:
            window.done()
        elif checkpoint is not None:
            _note(checkpoint, window.checkpoint)
        elif not follow:
            render.note(
                f"{'' if is_whole else 'after all rows, shown or not, '}continue with --since {window.checkpoint}"
            )


def readers(uri: Uri) -> None:
    """List the readers of changes that have a name, and how far behind they are.

    Example: crdt-mor readers events
    """
    found = inputs.opened(uri).inspect.readers()
    if render.is_json():
        render.lines({**row, "lag": row["lag"].total_seconds()} for row in found.to_pylist())
        return
    rows = [
        (row["reader"], row["checkpoint"] or "", row["commits"], row["lag"], "lost" if row["lost"] else "kept")
        for row in found.to_pylist()
    ]
    render.table(("reader", "checkpoint", "commits", "lag", "history"), rows, kept=("reader",))


def forget_reader(uri: Uri, name: Annotated[str, typer.Argument(metavar="NAME")]) -> None:
    """Forget a reader of changes, so that clean keeps no history for it.

    Example: crdt-mor forget-reader events billing

    Args:
        name: From crdt-mor readers.
    """
    inputs.opened(uri).maintenance.forget_reader(name)
    render.result({"forgotten": name}, f"the reader {name} is forgotten")


def diff(
    uri: Uri,
    before: Annotated[str, typer.Argument(metavar="T|TABLE")],
    after: Annotated[str | None, typer.Argument(metavar="T")] = None,
    as_of: AsOf = None,
    other_as_of: Annotated[str | None, typer.Option(metavar="T")] = None,
    columns: Columns = None,
    limit: Limit = None,
    format: How = Format.table,
) -> None:
    """Print the differences between two snapshots of a table, or compare two tables.

    Exit code 3 means that two tables differ.

    Example: crdt-mor diff events 1 5

    Args:
        before: The earlier moment, or another table.
        after: The later moment.
        other_as_of: The moment of the other table.
    """
    if after is None:
        moments = inputs.point(as_of, "--as-of"), inputs.point(other_as_of, "--other-as-of")
        _diff_of_tables(uri, before, moments, inputs.split_names(columns), limit, format)
        return
    if as_of is not None or other_as_of is not None:
        raise typer.BadParameter("the arguments are moments already: omit this option", param_hint="--as-of")
    start, end = inputs.point(before, "BEFORE"), inputs.point(after, "AFTER")
    assert start is not None
    assert end is not None
    table = inputs.opened(uri)
    form = checked_format(format)
    found = table.diff(start, end, columns=inputs.split_names(columns))
    send(found, most_rows(limit, form), form, table.config.key)


def _diff_of_tables(
    uri: str,
    other: str,
    moments: tuple[mor.AsOf | None, mor.AsOf | None],
    columns: Sequence[str] | None,
    limit: int | None,
    format: Format,
) -> None:
    from crdt_mor.api.diff import DIFFERENCE, diff_with_keys, sealed
    from crdt_mor.api.diff import diff as compared

    if render.is_json() and limit is not None:
        raise typer.BadParameter(
            "the document names at most 10 keys of each kind: use --format jsonl", param_hint="--limit"
        )
    form = checked_format(format)
    table = inputs.opened(uri, other)
    beside = _other_table(uri, other)
    sides = sealed(table._session, moments[0]), sealed(beside._session, moments[1], "other_as_of")  # noqa: SLF001
    if render.is_json():
        found = compared(*sides, columns)
        render.document({**asdict(found), "equal": found.is_equal})
    else:
        from crdt_mor.merge.kernel import to_arrow

        most = most_rows(limit, form)
        found, keys = diff_with_keys(*sides, columns, None if most is None else most + 1)
        render.note(str(found))
        if keys.height or form is not Format.table:
            send(to_arrow(keys), most, form, (DIFFERENCE, *found.key))
    if not found.is_equal:
        raise typer.Exit(BROKEN)


def _other_table(uri: str, other: str) -> mor.Table:
    try:
        return inputs.opened(other, uri)
    except mor.errors.TableNotFoundError as error:
        try:
            inputs.point(other, "AFTER")
        except typer.BadParameter:
            raise error from None
        raise mor.errors.TableNotFoundError(
            "there is no table here to compare with. To compare two moments, pass both: "
            f"crdt-mor diff {shlex.quote(uri)} {shlex.quote(other)} now. path={other}"
        ) from error


def _note(path: Path, checkpoint: str) -> None:
    put_whole(path, f"{checkpoint}\n".encode())
