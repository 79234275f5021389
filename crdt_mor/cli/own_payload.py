"""Load a user's payload named `module:name` on the command line."""

from __future__ import annotations

import importlib

import typer

import crdt_mor as mor
from crdt_mor.cli import inputs


def payload_at(path: str, hint: str = "MODULE:PAYLOAD") -> mor.Payload:
    """Load the payload at `module:name`. hint: the argument's name in errors."""
    module, colon, name = path.partition(":")
    if not colon or not module or not name:
        raise typer.BadParameter(f"a payload is named like crdt_mor.payloads:Counter. got={path!r}", param_hint=hint)
    inputs.import_from_here()
    try:
        target: object = importlib.import_module(module)
        for part in name.split("."):
            target = getattr(target, part)
        loaded = target() if isinstance(target, type) else target
    except Exception as error:  # a module can raise anything
        raise mor.errors.UnknownPayloadError(
            f"cannot load the payload: {type(error).__name__}: {error}. A class is called without arguments; if it "
            f"needs some, name an instance. payload={path}"
        ) from error
    if not isinstance(loaded, mor.Payload):
        raise mor.errors.UnknownPayloadError(f"a payload must be a subclass of crdt_mor.Payload. payload={path}")
    return loaded
