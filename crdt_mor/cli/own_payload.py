"""A payload of the user's own, named on the command line as `module:name`."""

from __future__ import annotations

import importlib

import typer

import crdt_mor as mor
from crdt_mor.cli import inputs


def payload_at(path: str, hint: str = "MODULE:PAYLOAD") -> mor.Payload:
    """The payload at `module:name`, for a command that takes its name under `hint`."""
    module, colon, name = path.partition(":")
    if not colon or not module or not name:
        raise typer.BadParameter(f"a payload is named like crdt_mor.payloads:Counter. got={path!r}", param_hint=hint)
    inputs.look_here()
    try:
        target: object = importlib.import_module(module)
        for part in name.split("."):
            target = getattr(target, part)
        loaded = target() if isinstance(target, type) else target
    except Exception as error:  # a user's module can raise anything
        raise mor.UnknownPayloadError(
            f"the payload cannot be loaded: {type(error).__name__}: {error}. A class is called without arguments: for "
            f"one that needs some, name an instance. payload={path}"
        ) from error
    if not isinstance(loaded, mor.Payload):
        raise mor.UnknownPayloadError(f"this is not a payload, a subclass of crdt_mor.Payload. payload={path}")
    return loaded
