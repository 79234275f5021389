"""From the name of a payload to the payload, and back: strings only, so that any process finds the same one.

    counter/1                 an entry point of the group `crdt_mor.payloads` of some installed package
    acme.payloads:Longest     a class in an importable module, where no package provides its name

A name never changes its meaning. A table keeps a fingerprint of what its payloads meant when it was made, and one that
means something else now is refused.
"""

from __future__ import annotations

import importlib
import json
import warnings
from collections.abc import Callable
from dataclasses import replace
from functools import cache, lru_cache
from importlib.metadata import EntryPoint, entry_points
from typing import Final
from urllib.parse import parse_qsl

from crdt_mor.errors import InvalidInputError, UnknownPayloadError
from crdt_mor.merge.fingerprint import fingerprint
from crdt_mor.merge.payload import Payload
from crdt_mor.model.merge_spec import PayloadRef

GROUP: Final = "crdt_mor.payloads"


def payload_of(given: Payload | str) -> Payload:
    """A payload from what a user gives: itself, `counter`, `counter/1`, `latest_by?by=at` or `module:Class`."""
    if isinstance(given, Payload):
        return given
    if not isinstance(given, str):
        raise InvalidInputError(f"a payload is an object like payloads.Counter(), or its name. got={given!r}")
    name, _, query = given.partition("?")
    if ":" in name:
        return _make(_import(name), _arguments(query), given)
    known = _provided()
    versions = [known_name for known_name in known if known_name.partition("/")[0] == name]
    latest = max(versions, key=lambda known_name: int(known_name.partition("/")[2]), default="")
    found = known.get(name) or known.get(latest)
    if found is None:
        raise UnknownPayloadError(
            f"no installed package has a payload of this name; known are {sorted(known)}, or give module:Class. "
            f"payload={given!r}"
        )
    return _make(found.load(), _arguments(query), given)


def reference(payload: Payload, check_laws: Callable[[Payload], None]) -> PayloadRef:
    """What a table stores of a payload; refuses one that no other process could find again, or that breaks its laws.

    Payloads that ship with crdt_mor keep theirs.
    """
    cls = type(payload)
    name = getattr(cls, "name", None)
    if not isinstance(name, str):
        raise InvalidInputError(f"a payload has a name, like name = 'acme.longest/1'. payload={cls.__qualname__}")
    entry = _provided().get(name)
    path = "" if entry is not None else f"{cls.__module__}:{cls.__qualname__}"
    if path.startswith("__main__:") or "<locals>" in path:
        raise InvalidInputError(
            "no other process could find this payload: put the class at the top of a module that can be imported, not "
            f"in a script or a notebook. payload={path}"
        )
    try:
        parameters = json.dumps(dict(payload.parameters()))
    except TypeError as error:
        raise InvalidInputError(f"parameters are JSON values: {error}. payload={name}") from error
    ref = PayloadRef(name, parameters, path=path)
    if entry is None or entry.dist is None or entry.dist.name != "crdt-mor":
        check_laws(payload)
    ref = replace(ref, fingerprint=fingerprint(payload))
    resolve(ref)  # as every other process will do
    return ref


@lru_cache(maxsize=256)
def resolve(ref: PayloadRef) -> Payload:
    """The payload that `ref` names. Raises `UnknownPayloadError` if it cannot be found, or means something else."""
    entry = _provided().get(ref.name)
    if entry is None and not ref.path:
        raise UnknownPayloadError(
            f"this table needs a payload that no installed package provides: install the one that has it. "
            f"payload={ref.name}"
        )
    cls = entry.load() if entry is not None else _import(ref.path)
    payload = _make(cls, ref.arguments, str(ref))
    if payload.name != ref.name:
        raise UnknownPayloadError(
            f"the class found is another payload: install the version of its package that the table was made with. "
            f"wanted={ref.name} found={payload.name} class={cls.__module__}:{cls.__qualname__}"
        )
    found = fingerprint(payload)
    if found != ref.fingerprint:
        raise UnknownPayloadError(
            "this payload means something else than when the table was made, so that answers would change: what means "
            "something else needs another name, like acme.longest/2. Install the version that the table was made with. "
            f"payload={ref} fingerprint={found} table={ref.fingerprint} class={cls.__module__}:{cls.__qualname__}"
        )
    if not payload.vectorised:
        warnings.warn(
            f"{ref.name} says join alone, so values are merged one by one in Python, a hundred times slower: write "
            "merge, the same as a polars expression (docs/payloads.md)",
            stacklevel=2,
        )
    return payload


@cache
def _provided() -> dict[str, EntryPoint]:
    return {entry.name: entry for entry in entry_points(group=GROUP)}


def _import(path: str) -> type[Payload]:
    module, _, name = path.partition(":")
    try:
        found: object = importlib.import_module(module)
        for part in name.split("."):
            found = getattr(found, part)
    except (ImportError, AttributeError) as error:
        raise UnknownPayloadError(
            f"the payload cannot be imported: {error}. Install its package, or put its folder on PYTHONPATH. "
            f"payload={path}"
        ) from error
    if not (isinstance(found, type) and issubclass(found, Payload)):
        raise UnknownPayloadError(f"this is not a payload class, a subclass of crdt_mor.Payload. payload={path}")
    return found


def _make(cls: type[Payload], arguments: dict[str, object], text: str) -> Payload:
    try:
        return cls(**arguments)
    except TypeError as error:
        raise InvalidInputError(f"the payload does not take these parameters: {error}. payload={text}") from error


def _arguments(query: str) -> dict[str, object]:
    """`by=at&lg_k=12`: JSON values, and what is none is text."""
    found: dict[str, object] = {}
    for name, text in parse_qsl(query, keep_blank_values=True):
        try:
            found[name] = json.loads(text)
        except ValueError:
            found[name] = text
    return found
