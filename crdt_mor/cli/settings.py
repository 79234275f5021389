"""`crdt-mor alter`, `add-columns`, `properties` and `rules`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

import crdt_mor as mor
from crdt_mor.cli import inputs, render
from crdt_mor.cli.options import Checks, Defaults, Info, Message, NotNull, Uri, Wait, asked_rules, commit_info
from crdt_mor.cli.type_names import type_of

if TYPE_CHECKING:
    import pyarrow as pa

Comments = Annotated[
    list[str] | None,
    typer.Option(metavar="NAME=TEXT", help="A column's comment; an empty text removes it. May be repeated."),
]


def add_columns(
    uri: Uri,
    columns: Annotated[list[str], typer.Argument(metavar="NAME=TYPE…", show_default=False)],
    default: Annotated[list[str] | None, typer.Option(metavar="NAME=VALUE")] = None,
    comment: Comments = None,
    wait: Wait = "60s",
    message: Message = None,
    info: Info = None,
) -> None:
    """Add columns, which are null in existing rows, or have a default.

    A default is a rule for later writes, and an update writes it to all existing rows.

    Example: crdt-mor add-columns events "country=string" "visits=int64" --default visits=0

    Args:
        columns: New columns.
        default: The value of existing rows and of writes that omit the column.
    """
    types = dict(_typed(text, "NAME=TYPE") for text in columns)
    table = inputs.opened(uri)
    table.add_columns(
        types,
        default=inputs.by_name(default, "--default"),
        comment=inputs.by_name(comment, "--comment"),
        wait=inputs.duration(wait, "--wait"),
        commit_info=commit_info(message, info),
    )
    _show(table)


def alter(
    uri: Uri,
    rename: Annotated[list[str] | None, typer.Option(metavar="OLD=NEW")] = None,
    drop: Annotated[list[str] | None, typer.Option(metavar="NAME")] = None,
    comment: Comments = None,
    widen: Annotated[list[str] | None, typer.Option(metavar="NAME=TYPE")] = None,
    message: Message = None,
    info: Info = None,
) -> None:
    """Rename, drop, widen or comment on columns in one event, without changing files.

    Example: crdt-mor alter events --rename "views=page views" --drop note --widen "price=decimal(12, 2)"

    Args:
        rename: A column and its new name. May be repeated.
        drop: A column to hide. May be repeated.
        widen: A column and its wider type. May be repeated.
    """
    if not (rename or drop or comment or widen):
        raise typer.BadParameter("pass --rename, --drop, --comment or --widen")
    table = inputs.opened(uri)
    table.alter(
        rename=inputs.renames(rename),
        drop=drop or (),
        comment=dict(_comment(text) for text in comment or ()),
        widen=dict(_typed(text, "--widen") for text in widen or ()),
        commit_info=commit_info(message, info),
    )
    _show(table)


def _show(table: mor.Table) -> None:
    columns = {field.name: str(field.type) for field in table.schema}
    shown = {"version": table.version, "columns": columns, "comments": table.inspect.comments()}
    render.result(shown, f"the columns are {', '.join(columns)}: version {table.version}")


def _comment(text: str) -> tuple[str, str | None]:
    found = inputs.name_and_value(text)
    if found is None:
        raise typer.BadParameter(f"pass a column and its comment: price=in euro. got={text!r}", param_hint="--comment")
    return found[0], found[1] or None


def _typed(text: str, name: str) -> tuple[str, pa.DataType]:
    column, kind = inputs.name_and_value(text) or ("", "")
    if (found := type_of(kind)) is None:
        raise typer.BadParameter(
            f"pass a column and a type as crdt-mor schema prints it: price=decimal(12, 2). got={text!r}",
            param_hint=name,
        )
    return column, found


def properties(
    uri: Uri,
    assignments: Annotated[list[str] | None, typer.Argument(metavar="[NAME=VALUE]...", show_default=False)] = None,
    unset: Annotated[list[str] | None, typer.Option(metavar="NAME")] = None,
) -> None:
    """Set and remove properties in one event, then print them all.

    Example: crdt-mor properties events crdt_mor.cluster_by=country,day

    Args:
        assignments: Properties to set.
        unset: Remove this property. May be repeated.
    """
    changes: dict[str, str | None] = dict.fromkeys(unset or ())
    for assignment in assignments or ():
        name, found, value = assignment.partition("=")
        if not found:
            raise typer.BadParameter(f"use NAME=VALUE to set a property, --unset NAME to remove it. got={assignment!r}")
        if name in changes:
            raise typer.BadParameter(f"set or remove each property once. got={name!r}")
        changes[name] = value
    table = inputs.opened(uri)
    if changes:
        table.set_properties(changes)
    found_now = dict(table.properties)
    if render.is_json():
        render.document({"properties": found_now})
    elif found_now:
        render.facts(found_now)
    else:
        render.note("no properties")


_KINDS = ("not_null", "check", "default")


def rules(
    uri: Uri,
    not_null: NotNull = None,
    check: Checks = None,
    default: Defaults = None,
    drop: Annotated[list[str] | None, typer.Option(metavar="KIND:NAME")] = None,
    validate: Annotated[bool, typer.Option("--validate/--no-validate")] = True,
    wait: Wait = "60s",
) -> None:
    """Add or drop rules, then print the rules of a table.

    Example: crdt-mor rules events --not-null views --check "positive=views >= 0"

    Args:
        drop: not_null:price, check:positive or default:country. May be repeated.
        validate: Whether existing rows must obey new rules.
    """
    dropped, added = _dropped(drop or []), asked_rules(not_null, check, default)
    if dropped and added is not None:  # they are two events, and the second may be refused
        raise typer.BadParameter("cannot drop and add in one command: run it once with --drop and once without")
    patience = inputs.duration(wait, "--wait")
    table = inputs.opened(uri)
    if dropped:
        table.drop_rules(dropped)
    if added is not None:
        table.add_rules(added, validate=validate, wait=patience)
    found = table.rules
    if render.is_json():
        render.document(document(found))
    elif found:
        render.facts(texts(found))
    else:
        render.note("no rules")


def document(rules: mor.Rules) -> dict[str, object]:
    return {
        "not_null": list(rules.not_null),
        "check": dict(rules.check),
        "default": dict(rules.default),
        "unproven": list(rules.unproven),
    }


def texts(rules: mor.Rules) -> dict[str, str]:
    """Return each rule's text by kind and name."""
    said = {f"not_null {name}": "yes" for name in rules.not_null}
    said |= {f"check {name}": condition for name, condition in rules.check.items()}
    said |= {f"default {name}": str(value) for name, value in rules.default.items()}
    return {name: text + (", unproven" if name in rules.unproven else "") for name, text in said.items()}


def _dropped(texts: list[str]) -> list[str]:
    """Return the rules of `--drop check:positive` as `Table.drop_rules` names them."""
    for text in texts:
        kind, _, name = text.partition(":")
        if kind not in _KINDS or not name:
            raise typer.BadParameter(
                f"use not_null:COLUMN, check:NAME or default:COLUMN. got={text!r}", param_hint="--drop"
            )
    return [text.replace(":", " ", 1) for text in texts]


def declared(table: mor.Table) -> dict[str, Any]:
    config = table.config
    return {
        "version": table.version,
        "format": f"Hudi {config.hudi_version}, {config.table_type}",
        "key": list(config.key),
        "partition_by": [*map(str, config.partition_by)],
        "merge": config.merge,
        "buckets": config.buckets,
        "properties": dict(table.properties),
        "rules": [f"{name}: {text}" for name, text in texts(table.rules).items()],
    }
