"""`crdt-mor rules`: list, add and drop a table's rules."""

from __future__ import annotations

from typing import Annotated

import typer

import crdt_mor as mor
from crdt_mor.cli import inputs, render
from crdt_mor.cli.options import Checks, Defaults, NotNull, Uri, Wait

_KINDS = ("not_null", "check", "default")


def rules(
    uri: Uri,
    not_null: NotNull = None,
    check: Checks = None,
    default: Defaults = None,
    drop: Annotated[
        list[str] | None,
        typer.Option(metavar="KIND:NAME", help="not_null:price, check:positive or default:country. May be repeated."),
    ] = None,
    validate: Annotated[
        bool, typer.Option("--validate/--no-validate", help="Whether existing rows must obey new rules.")
    ] = True,
    wait: Wait = "60s",
) -> None:
    """Drop and add rules, then print the rules of a table.

    Example: crdt-mor rules events --not-null views --check "positive=views >= 0"
    """
    dropped = _dropped(drop or [])
    table = inputs.opened(uri)
    if drop:
        table.drop_rules(**dropped)
    if not_null or check or default:
        table.add_rules(
            not_null=inputs.split_names(not_null) or (), check=inputs.by_name(check, "--check"),
            default=inputs.by_name(default, "--default"), validate=validate, wait=inputs.duration(wait, "--wait"),
        )  # fmt: skip
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


def _dropped(texts: list[str]) -> dict[str, list[str]]:
    """Group `--drop check:positive` by kind."""
    dropped: dict[str, list[str]] = {kind: [] for kind in _KINDS}
    for text in texts:
        kind, _, name = text.partition(":")
        if kind not in _KINDS or not name:
            raise typer.BadParameter(
                f"use not_null:COLUMN, check:NAME or default:COLUMN. got={text!r}", param_hint="--drop"
            )
        dropped[kind].append(name)
    return dropped
