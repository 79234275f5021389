"""`crdt-mor append`, `upsert`, `update`, `delete`, `move`, `overwrite`, `delete-partitions` and `truncate`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from enum import StrEnum
from typing import Annotated, Any

import typer

import crdt_mor as mor
from crdt_mor.cli import inputs, render
from crdt_mor.cli.data import READING, STDIN, Reading, check_files, check_inputs, rows_of
from crdt_mor.cli.keys import key_rows
from crdt_mor.cli.options import A_PARTITION, UNNAMED, Named, Uri, Wait
from crdt_mor.cli.python_values import records
from crdt_mor.ground.late_imports import pa
from crdt_mor.model.policies import plural

_WHAT_FILES = "Parquet, Arrow, CSV or JSON lines files, or s3://…; several make one commit; - is stdin."
Files = Annotated[list[str], typer.Argument(metavar="FILE", help=_WHAT_FILES, show_default=False)]
SomeFiles = Annotated[list[str] | None, typer.Argument(metavar="FILE", help=_WHAT_FILES, show_default=False)]
Plain = Annotated[bool, typer.Option("--plain", help="Delete regardless of ordering values.")]


class Verb(StrEnum):
    append = "append"
    upsert = "upsert"
    delete = "delete"


class SchemaMode(StrEnum):
    strict = "strict"
    merge = "merge"


Mode = Annotated[SchemaMode, typer.Option(help="merge: add columns that the table lacks, widen types.")]


def append(
    uri: Uri, files: Files, schema_mode: Mode = SchemaMode.strict, how: Reading = READING, named: Named = UNNAMED
) -> None:
    """Insert the rows of files in one commit.

    Example: crdt-mor append events monday.parquet tuesday.parquet
    """
    _write_files(uri, Verb.append, files, schema_mode, False, how, named)


def upsert(
    uri: Uri,
    files: Files,
    schema_mode: Mode = SchemaMode.strict,
    nulls: Annotated[str | None, typer.Option(metavar="A,B")] = None,
    how: Reading = READING,
    named: Named = UNNAMED,
) -> None:
    """Insert or update the rows of files by key, in one commit.

    Example: crdt-mor upsert events new.csv more.jsonl

    Args:
        nulls: Columns in which nulls are written.
    """
    _write_files(uri, Verb.upsert, files, schema_mode, False, how, named, inputs.split_names(nulls) or ())


def update(
    uri: Uri,
    set_: Annotated[list[str], typer.Option("--set", metavar="COLUMN=SQL", show_default=False)],
    where: Annotated[str | None, typer.Option(metavar="SQL")] = None,
    wait: Wait = "60s",
    named: Named = UNNAMED,
) -> None:
    """Update columns of matching rows, exactly, beside other writers.

    It computes from all earlier writes, and prints the number of changed rows. SQL strings are in single quotes.

    Example: crdt-mor update events --set "views=views + 1" --set "note='checked'" --where "city = 'Rome'"

    Args:
        set_: A column and its new value.
        where: Rows that match: "views < 10"; default: all rows.
    """
    assigned = dict(_assignment(text) for text in set_)
    if len(assigned) < len(set_):
        raise typer.BadParameter("set each column once", param_hint="--set")
    table = inputs.opened(uri)
    say(table.update(assigned, where, wait=inputs.duration(wait, "--wait"), **named.arguments))


def delete(
    uri: Uri,
    files: SomeFiles = None,
    where: Annotated[str | None, typer.Option(metavar="SQL")] = None,
    keys: Annotated[list[str] | None, typer.Option(metavar="A,B|@FILE|-")] = None,
    plain: Plain = False,
    wait: Wait = "60s",
    how: Reading = READING,
    named: Named = UNNAMED,
) -> None:
    """Delete rows in one commit: by the keys in files, by --where or by --keys.

    It does not ask, and prints the number of deleted rows.

    Example: crdt-mor delete events --where "views < 10"

    Args:
        where: Rows that match: "views < 10".
        keys: Keys: values; @FILE or - with one key per line. For a key of several columns, the values of one key. May
            be repeated.
    """
    if sum(bool(one) for one in (files, where is not None, keys)) != 1:
        raise typer.BadParameter("pass exactly one of files, --where and --keys")
    if files:
        _write_files(uri, Verb.delete, files, SchemaMode.strict, plain, how, named)
        return
    if "-" in (keys or ()):
        check_inputs([STDIN] * (keys or []).count("-"))
    table = inputs.opened(uri)
    rows = _keys(keys, table) if keys else None
    how_long = inputs.duration(wait, "--wait")
    say(table.delete(rows, where=where, plain=plain, wait=how_long, **named.arguments))


# --- inside -----------------------------------------------------------------------------------------------------------


def _assignment(text: str) -> tuple[str, str]:
    found = inputs.name_and_value(text)
    if found is None or not found[1].strip():
        raise typer.BadParameter(
            "pass COLUMN=SQL, such as views=views+1; put a column name with an equals sign in double quotes. "
            f"got={text!r}",
            param_hint="--set",
        )
    return found[0], found[1].strip()


def _write_files(
    uri: str,
    verb: Verb,
    files: list[str],
    schema_mode: SchemaMode,
    plain: bool,
    how: Reading,
    named: Named,
    nulls: Sequence[str] = (),
) -> None:
    check_files(files)
    table = inputs.opened(uri)
    data = [rows_of(file, table.schema, how) for file in files]

    def write(to: mor.Table | mor.Transaction, rows: pa.Table, **arguments: Any) -> mor.Commit | None:
        if verb is Verb.append:
            return to.append(rows, schema_mode=schema_mode.value, **arguments)
        if verb is Verb.upsert:
            return to.upsert(rows, schema_mode=schema_mode.value, nulls=nulls, **arguments)
        return to.delete(rows, plain=plain, **arguments)

    if len(data) == 1:  # in one event, and refused before one
        say(write(table, data[0], **named.arguments))
        return
    with table.transaction(**named.arguments) as tx:
        for rows in data:
            write(tx, rows)
    say(tx.commit, len(files))


def say(commit: mor.Commit | None, files: int = 1) -> None:
    assert commit is not None
    if render.is_json():
        render.document(asdict(commit))
        return
    counts = {"written": commit.rows, "deleted": commit.deletes}
    done = ", ".join(f"{plural(count, 'row', ',')} {what}" for what, count in counts.items() if count) or "no rows"
    if commit.covered is not None:
        done += f", in place of all rows of {_covered(commit.covered)}"
    if commit.repeated:
        done = "nothing was written, because this token was used before"
    elif files > 1:
        done += f", {files} files in one commit"
    render.note(f"{done}: version {commit.version}, requested {commit.requested_at}, completed {commit.completed_at}")


def _covered(partitions: tuple[str, ...]) -> str:
    if partitions == ("*",):
        return "the table"
    return f"the partitions {', '.join(partitions)}" if len(partitions) <= 3 else f"{len(partitions):,} partitions"


def _keys(texts: list[str], table: mor.Table) -> pa.Table:
    fields = table.config.key
    if not set(table.config.partition_sources) <= set(fields):
        raise mor.InvalidInputError(
            "the key does not determine the partition: use --where, or a file with the key and partition columns. "
            f"key={list(fields)} partition_by={[*map(str, table.config.partition_by)]}"
        )
    return key_rows(texts, table)


def move(
    uri: Uri,
    keys: Annotated[list[str], typer.Option("--keys", metavar="A,B|@FILE|-", show_default=False)],
    partition: Annotated[list[str], typer.Option(metavar="A=VALUE", show_default=False)],
    wait: Wait = "60s",
    named: Named = UNNAMED,
) -> None:
    """Move rows to another partition by key, in one commit.

    Example: crdt-mor move people --keys ada,bob --partition country=FR

    Args:
        keys: Keys in any partition: values; @FILE or - with one key per line. May be repeated.
        partition: The new partition; A= is null, A="" an empty string. May be repeated.
    """
    check_inputs([STDIN] * sum(text in ("-", "@-") for text in keys))
    table = inputs.opened(uri)
    rows = [tuple(row.values()) for row in records(key_rows(keys, table))]
    to = {name: _value(text) for name, text in inputs.by_name(partition, "--partition").items()}
    done = table.move(rows, partition=to, wait=inputs.duration(wait, "--wait"), **named.arguments)
    text = f"version {done.version}: moved {plural(done.updated, 'row', ',')}"
    if done.repeated:
        text = "nothing was written: this token was used before"
    render.result({"version": done.version, "moved": done.updated, "repeated": done.repeated}, text)


def _value(text: str) -> str | None:
    """Parse a partition value as in CSV: nothing is null, two double quotes are an empty string."""
    return None if not text else "" if text == '""' else text


Partitions = Annotated[
    list[str] | None,
    typer.Option(
        "--partition",
        metavar="P|dynamic",
        help=f"Replace only this partition: {A_PARTITION}; dynamic: all with new rows. May be repeated.",
    ),
]
Yes = Annotated[bool, typer.Option("--yes", help="Do not ask.")]


def overwrite(
    uri: Uri,
    files: Files,
    partitions: Partitions = None,
    schema_mode: Mode = SchemaMode.strict,
    how: Reading = READING,
    named: Named = UNNAMED,
) -> None:
    """Replace all rows, or the rows of some partitions, by files in one commit.

    Example: crdt-mor overwrite events monday.parquet --partition dynamic
    """
    check_files(files)
    table = inputs.opened(uri)
    data = [pa.table(rows_of(file, table.schema, how)) for file in files]
    if partitions and "dynamic" in partitions and len(partitions) > 1:
        raise typer.BadParameter("--partition dynamic must be alone, for all partitions with new rows")
    commit = table.overwrite(
        pa.concat_tables(data, promote_options="permissive"),
        partitions="dynamic" if partitions == ["dynamic"] else partitions or None,
        schema_mode=schema_mode.value,
        **named.arguments,
    )
    say(commit, len(files))


def delete_partitions(
    uri: Uri,
    partitions: Annotated[
        list[str], typer.Argument(metavar="PARTITION", help=f"Each is {A_PARTITION}.", show_default=False)
    ],
    yes: Yes = False,
    named: Named = UNNAMED,
) -> None:
    """Delete all rows of some partitions in one commit. Asks first.

    Example: crdt-mor delete-partitions events day=2026-01-31 --yes
    """
    table = inputs.opened(uri)
    _ask(f"all rows of {len(partitions)} partitions will be deleted from {table.uri}", yes)
    say(table.delete_partitions(partitions, **named.arguments))


def truncate(uri: Uri, yes: Yes = False, named: Named = UNNAMED) -> None:
    """Delete all rows of a table in one commit. Asks first.

    Example: crdt-mor truncate events --yes
    """
    table = inputs.opened(uri)
    if not yes:
        _ask(f"all {table.count():,} rows will be deleted from {table.uri}", yes)
    say(table.truncate(**named.arguments))


def _ask(what: str, yes: bool) -> None:
    if yes:
        return
    if render.is_json():
        raise typer.BadParameter("this command cannot ask with --output json: add --yes")
    render.note(f"{what}; earlier snapshots still show them.")
    if not typer.confirm("Delete?", err=True):
        render.note("nothing was deleted")
        raise typer.Exit(1)
