"""Resolve a payload's name to the payload, and back, by strings that work in any process.

    counter/1                 an entry point of the group `crdt_mor.payloads` of some installed package
    acme.payloads:Longest     a class of this process (see `allowed.py`), if no package provides its name

A table imports only entry points of installed packages. Packages in the current folder do not count, because a table
may have come with them. A payload with another fingerprint than the table's is refused: names never change their
meaning. A table stores nothing but the class and `parameters()`, so a payload that keeps more is refused as well.
"""

from __future__ import annotations

import json
import os
import pickle
import sys
import warnings
from collections.abc import Collection, Iterable
from contextlib import suppress
from dataclasses import replace
from functools import cache, cached_property, lru_cache
from importlib.metadata import EntryPoint, distributions
from inspect import getattr_static
from typing import Any, Final
from urllib.parse import parse_qsl

from crdt_mor.errors import CrdtMorError, InvalidInputError, UnknownPayloadError, page
from crdt_mor.laws.allowed import PickledPayloads, allowed_class, import_payload, require_class
from crdt_mor.merge.payload import Payload
from crdt_mor.model.merge_spec import PayloadRef

GROUP: Final = "crdt_mor.payloads"
SHIPPED: Final = {
    name: f"crdt_mor.payloads:{cls}"
    for name, cls in {
        "last/1": "Last", "latest_by/1": "LatestBy", "first/1": "First", "max/1": "Max", "min/1": "Min", "any/1": "Any",
        "all/1": "All", "counter/1": "Counter", "grow_set/1": "GrowOnlySet", "or_set/1": "ORSet",
        "mv_register/1": "MVRegister", "map_last/1": "MapLast", "event_list/1": "EventList", "distinct/1": "Distinct",
        "quantiles/1": "Quantiles",
    }.items()
}  # fmt: skip
"""Entry points of this package. A copy of its folder, such as a zip file for Spark, lacks their metadata."""


def payload_of(payload: Payload | str) -> Payload:
    """Return a user's payload: an object, `counter`, `counter/1`, `latest_by?by=at` or `module:Class`."""
    if isinstance(payload, Payload):
        return payload
    if not isinstance(payload, str):
        text = "pass a payload as an object like crdt_mor.payloads.Counter(), or by its name"
        raise InvalidInputError(f"{text}. got={payload!r}")
    name, _, query = payload.partition("?")
    if ":" in name:
        return _make(import_payload(name), _arguments(query), payload)
    known = _provided()
    versions = [known_name for known_name in known if known_name.partition("/")[0] == name]
    latest = max(versions, key=lambda known_name: int(known_name.partition("/")[2]), default="")
    entry = known.get(name) or known.get(latest)
    if entry is None:
        raise UnknownPayloadError(
            f"no installed package has a payload of this name: use one of {sorted(known)}, or module:Class. "
            f"payload={payload!r}"
        )
    return _make(_load(entry), _arguments(query), payload)


def reference(payload: Payload, kept: Collection[PayloadRef] = ()) -> PayloadRef:
    """Return a payload in the form that a table stores.

    Refuses payloads that other processes cannot make, and broken laws. Shipped payloads and `kept` ones, of an existing
    table, are not checked again.
    """
    cls = type(payload)
    name = getattr(cls, "name", None)
    if not isinstance(name, str):
        raise InvalidInputError(f"give the payload a name, such as name = 'acme.longest/1'. payload={cls.__qualname__}")
    entry = _provided().get(name)
    if entry is not None:
        _require_own_name(cls, entry)
    path = "" if entry is not None else f"{cls.__module__}:{cls.__qualname__}"
    if path.startswith("__main__:") or "<locals>" in path:
        raise InvalidInputError(
            "other processes cannot find this payload: put the class at the top level of an importable module. "
            f"payload={path}"
        )
    try:
        parameters = json.dumps(dict(payload.parameters()))
    except TypeError as error:
        raise InvalidInputError(f"use JSON values as parameters: {error}. payload={name}") from error
    ref = PayloadRef(name, parameters, path=path)
    require_remade(payload, parameters)
    if not _ships(entry) and ref not in [replace(old, fingerprint="") for old in kept]:
        from crdt_mor.laws.check import check_laws, raised_at_edges

        check_laws(payload)
        for raised in raised_at_edges(payload):
            warnings.warn(
                f"{name}: {raised}. After a write of such a value its key cannot be read: accept the value in "
                f"join, or raise in lift; see {page('own-payloads')}",
                stacklevel=2,
            )
    from crdt_mor.laws.fingerprint import fingerprint

    ref = replace(ref, fingerprint=fingerprint(payload))
    resolve(ref)  # as in every other process
    return ref


@lru_cache(maxsize=256)
def resolve(ref: PayloadRef) -> Payload:
    """Return the payload of `ref`. Raises `UnknownPayloadError` if the payload is missing or changed its meaning."""
    from crdt_mor.laws.fingerprint import fingerprint

    entry = _provided().get(ref.name)
    cls = _load(entry) if entry is not None else allowed_class(ref)
    name = getattr(cls, "name", None)
    if name != ref.name:  # checked first: the table's parameters belong to that payload only
        raise UnknownPayloadError(
            "the class at this name is another payload: install its package in the table's version. "
            f"wanted={ref.name} found={name} class={cls.__module__}:{cls.__qualname__}"
        )
    try:
        payload = _make(cls, ref.arguments, str(ref))
        means = fingerprint(payload)
    except CrdtMorError:
        raise
    except Exception as error:
        raise UnknownPayloadError(
            f"this payload fails with the table's parameters: {type(error).__name__}: {error}. Install its "
            f"package in the table's version. payload={ref}"
        ) from error
    if means != ref.fingerprint:
        raise UnknownPayloadError(
            "this payload has changed its meaning since the table was made. Install the table's version; give "
            f"a changed payload a new name, such as acme.longest/2. payload={ref} fingerprint={means} "
            f"table={ref.fingerprint} class={cls.__module__}:{cls.__qualname__}"
        )
    if not payload.vectorised:
        warnings.warn(
            f"{ref.name} lacks merge, so join merges single values, a hundred times slower: add merge as "
            f"a polars expression; see {page('own-payloads')}",
            stacklevel=2,
        )
    return payload


def pickled_payloads(refs: Iterable[PayloadRef]) -> PickledPayloads:
    """Return the classes that a table's pickled views carry, without shipped and missing ones."""
    classes = []
    for ref in refs:
        if not _ships(_provided().get(ref.name)):
            with suppress(CrdtMorError):
                classes.append(type(resolve(ref)))
    return PickledPayloads(classes)


@cache
def _provided() -> dict[str, EntryPoint]:
    """Return all entry points; the first on the path wins for a name."""
    entries: dict[str, EntryPoint] = {}
    for package in distributions(path=_installed(sys.path)):
        for entry in package.entry_points.select(group=GROUP):
            entries.setdefault(entry.name, entry)
    for name, value in SHIPPED.items():
        entries.setdefault(name, EntryPoint(name, value, GROUP))
    return entries


def _installed(path: list[str]) -> list[str]:
    """Return the search path without the current folder, unless PYTHONPATH contains it."""
    here = os.path.realpath(os.getcwd())
    python_path = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    on_python_path = {os.path.realpath(folder) for folder in python_path if folder}
    return [folder for folder in path if folder and (os.path.realpath(folder) != here or here in on_python_path)]


def _ships(entry: EntryPoint | None) -> bool:
    return entry is not None and entry.value == SHIPPED.get(entry.name)


def _load(entry: EntryPoint) -> type[Payload]:
    try:
        loaded = entry.load()
    except (ImportError, AttributeError) as error:
        raise UnknownPayloadError(
            f"the payload's package is broken or hidden: {error}. Reinstall it, or rename the module that "
            f"hides it. payload={entry.name} class={entry.value} package={entry.dist and entry.dist.name}"
        ) from error
    return require_class(loaded, entry.value)


def _require_own_name(cls: type[Payload], entry: EntryPoint) -> None:
    provided = _load(entry)
    if (cls.__module__, cls.__qualname__) != (provided.__module__, provided.__qualname__):
        package = "crdt_mor" if _ships(entry) else entry.dist and entry.dist.name
        raise InvalidInputError(
            "an installed package already provides this payload name: give the class "
            f"its own name, such as name = 'acme.{entry.name}'. payload={cls.__module__}:{cls.__qualname__} "
            f"name={entry.name} package={package}"
        )


def _make(cls: type[Payload], arguments: dict[str, object], text: str) -> Payload:
    try:
        return cls(**arguments)
    except TypeError as error:
        raise InvalidInputError(f"the payload does not accept these parameters: {error}. payload={text}") from error


def _arguments(query: str) -> dict[str, object]:
    """Return the arguments of `by=at&lg_k=12`; a value that is not JSON is text."""
    arguments: dict[str, object] = {}
    for name, text in parse_qsl(query, keep_blank_values=True):
        try:
            arguments[name] = json.loads(text)
        except ValueError:
            arguments[name] = text
    return arguments


_ADVICE = (
    "make the class a frozen dataclass with a field for each parameter, or return all arguments of __init__ from "
    "parameters()"
)


def require_remade(payload: Payload, parameters: str) -> None:
    """Raise `InvalidInputError` with the differing attributes if the payload is not equal to `cls(**parameters)`."""
    cls: Any = type(payload)
    try:
        remade = cls(**json.loads(parameters))
    except TypeError as error:
        raise InvalidInputError(
            f"the class cannot be made from its stored parameters: {error}. Do this: {_ADVICE}. "
            f"payload={cls.__qualname__} stored={parameters}"
        ) from error
    before, after = _attributes(payload), _attributes(remade)
    lost = sorted(name for name in before.keys() | after.keys() if not _same(before.get(name), after.get(name)))
    if lost:
        names = [name.strip("_") for name in lost]
        raise InvalidInputError(
            f"a table would lose parameters of this payload and show other values: {_ADVICE}. "
            f"payload={cls.__qualname__} parameters={names} stored={parameters}"
        )


def _attributes(payload: Payload) -> dict[str, Any]:
    state: Any = object.__getstate__(payload)
    parts = state if isinstance(state, tuple) else (state,)  # a class with slots gives two
    found = {name: value for part in parts for name, value in (part or {}).items()}
    cls = type(payload)
    return {n: v for n, v in found.items() if not isinstance(getattr_static(cls, n, None), cached_property)}


def _same(a: Any, b: Any) -> bool:
    """Return True if two values are equal; a list equals a tuple, because of JSON."""
    match a, b:
        case (list() | tuple(), list() | tuple()):
            return len(a) == len(b) and all(map(_same, a, b))
        case (dict(), dict()):
            return a.keys() == b.keys() and all(_same(a[key], b[key]) for key in a)
    with suppress(Exception):  # arrays and expressions have no truth value
        if a == b:
            return True
    with suppress(Exception):  # the contents of objects without `__eq__`
        return type(a) is type(b) and pickle.dumps(a) == pickle.dumps(b)
    return False
