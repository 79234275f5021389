"""`crdt-mor laws MODULE:PAYLOAD`: the deep law check for authors of payloads."""

from __future__ import annotations

import importlib.util
import os
import sys
import tempfile
from typing import Annotated

import typer

import crdt_mor as mor
from crdt_mor.cli import render
from crdt_mor.cli.failures import BROKEN
from crdt_mor.cli.own_payload import payload_at

SHALLOW = (
    "this was the shallow check of create: all short histories of the payload's examples and some of other values, the "
    "same each time. For the deep check, with longer histories of random values: pip install 'crdt-mor[testing]'"
)


def laws(
    payload: Annotated[
        str,
        typer.Argument(
            metavar="MODULE:PAYLOAD", help="A class or an instance: crdt_mor.payloads:Counter.", show_default=False
        ),
    ],
    examples: Annotated[int, typer.Option(metavar="N", min=1, help="Random histories of the deep check.")] = 200,
) -> None:
    """Check a payload's laws, and print a counterexample for each broken law.

    Exit code 3 means a broken law. Without the package hypothesis the check is shallow.

    Example: crdt-mor laws crdt_mor.payloads:Counter
    """
    from crdt_mor.laws.claims import LAWS, laws_of

    loaded = payload_at(payload)
    _leave_no_cache_here()
    deep = _has_hypothesis()
    error: mor.errors.LawError | None = None
    try:
        mor.check_laws(loaded, deep=deep, examples=examples)
    except mor.errors.LawError as broken:
        error = broken
    kept = {law: error is None or law not in error.laws for law in laws_of(loaded)}
    kept |= dict.fromkeys(error.laws if error else (), False)
    if render.is_json():
        name, message = str(loaded.name), str(error) if error else None
        check = "deep" if deep else "shallow"
        render.document({"payload": name, "kind": loaded.kind, "check": check, "laws": kept, "message": message})
    else:
        render.facts({f"{'✓' if fine else '✗'} {law}": LAWS[law].says for law, fine in kept.items()})
        render.note(str(error) if error else f"{loaded.name} keeps the laws of its kind, {loaded.kind}")
        if not deep:
            render.note(SHALLOW)
    if error:
        raise typer.Exit(BROKEN)


def _has_hypothesis() -> bool:
    return importlib.util.find_spec("hypothesis") is not None


def _leave_no_cache_here() -> None:
    if "hypothesis" not in sys.modules:
        folder = os.path.join(tempfile.gettempdir(), "crdt-mor-hypothesis")
        os.environ.setdefault("HYPOTHESIS_STORAGE_DIRECTORY", folder)
