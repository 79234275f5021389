"""`crdt-mor why`: the contributions to the values of one row."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from itertools import groupby
from typing import Annotated, Any

import typer
from rich.text import Text

from crdt_mor.cli import inputs, render
from crdt_mor.cli.keys import key_of
from crdt_mor.cli.options import AsOf, Uri
from crdt_mor.cli.python_values import records

_VALUE_MAX = 60
"""Characters per value."""

Line = Mapping[str, Any]


def why(
    uri: Uri,
    key: Annotated[str, typer.Argument(metavar="KEY", show_default=False)],
    column: Annotated[str | None, typer.Option(metavar="C")] = None,
    as_of: AsOf = None,
) -> None:
    """Show the history of a row: each write, the merge's result and its rule.

    Contributions are in merge order, which is the order of their begins.

    Example: crdt-mor why events user-17 --column views

    Args:
        key: The key's value, after -- if it begins with a dash; several columns with commas.
        column: Only contributions to this column.
    """
    table = inputs.opened(uri)
    told = table.why(key_of(key, table), column=column, as_of=inputs.point(as_of, "--as-of"))
    found = records(told, maps_as_dicts=True)
    if render.is_json():
        render.lines(found)
        return
    if not found:
        by = "" if as_of is None else f" by {as_of}"
        render.note(f"no retained commit wrote this key{by}. key={key}")
        return
    console = render.stdout()
    for text in _life(found):
        console.print(text, soft_wrap=True)


def _life(lines: Sequence[Line]) -> Iterator[Text]:
    for partition, own in groupby(lines, lambda line: str(line["partition"])):
        if partition:
            yield Text(f"in partition {partition}", style="bold")
        row: Mapping[str, Any] | None = None
        for line in own:
            yield Text.assemble(("● ", _STYLES[line["effect"]]), (_head(line), "bold"))
            for text in _body(line):
                yield Text(f"│   {text}")
            row = line["result"]
        yield Text("○ the row does not exist" if row is None else f"○ {_values(row, list(row))}", style="bold")


_STYLES = {"inserted": "green", "updated": "green", "deleted": "red", "none": "dim"}


def _head(line: Line) -> str:
    who = f" by {line['application']} ({line['pid']} on {line['host']})" if line["application"] else ""
    who = f" by one of {', '.join(dict.fromkeys(line['writers']))}" if line["writers"] else who
    seen = "" if line["completed"] is None else f", completed {_moment(line['completed'])}, version {line['version']}"
    said = f": {line['message']}" if line["message"] else ""
    return f"{_moment(line['requested'])}  {_called(line)}{who}{seen}{said}"


def _called(line: Line) -> str:
    change, operation = str(line["change"]), str(line["operation"] or "").lower()
    return change if operation in ("", change) else f"{change} ({operation})"


def _body(line: Line) -> Iterator[str]:
    if line["written"] is not None:
        yield f"gives    {_values(line['written'], line['columns'])}"
    changed = ", ".join(line["changed"])
    match line["effect"]:
        case "updated":
            yield f"changes  {_values(line['result'], line['changed'])}"
        case "none":
            yield "changes  nothing" + (", as the row already contains these values" if has_same_values(line) else "")
        case effect:
            yield f"{effect}" + ("" if effect == "deleted" else f" {changed}")
    yield f"because  {line['because']}"
    if line["overtaken_by"]:
        others = ", ".join(line["overtaken_by"])
        yield f"unseen   because {others} began later and completed earlier"
    if line["carried_by"]:
        yield f"carried  by the compaction {', '.join(line['carried_by'])}, which left it in log files"
    if line["folded_by"]:
        yield f"folded   by the compaction {line['folded_by']} into a base file"


def has_same_values(line: Line) -> bool:
    """Return True if a contribution only repeats the row's values."""
    written, result = line["written"], line["result"]
    if line["effect"] != "none" or written is None or result is None:
        return False
    return all(written[name] == result[name] for name in line["columns"])


def _values(row: Mapping[str, Any], names: list[str]) -> str:
    """Format as `n = 3, city = Oslo`."""
    return ", ".join(f"{name} = {_short(row[name])}" for name in names)


def _short(value: object) -> str:
    text = render.cell(value).plain
    return text if len(text) <= _VALUE_MAX else f"{text[: _VALUE_MAX - 1]}…"


def _moment(moment: datetime) -> str:
    return f"{moment:%Y-%m-%d %H:%M:%S}.{moment.microsecond // 1000:03d}"
