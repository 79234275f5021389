"""From the name of a payload to the payload, and back: strings only, so that any process finds the same one.

    counter/1                 an entry point of the group `crdt_mor.payloads` of some installed package
    acme.payloads:Longest     a class that this process has imported or allowed, where no package provides its name

What a table says imports nothing but the entry points of installed packages; `allowed.py` has the rest of that rule.
What lies in the current folder is not installed: a table may have come with it.

A name never changes its meaning. A table keeps a fingerprint of what its payloads meant when it was made, and one that
means something else now is refused.
"""

from __future__ import annotations

import json
import os
import sys
import warnings
from collections.abc import Collection, Iterable
from contextlib import suppress
from dataclasses import replace
from functools import cache, lru_cache
from importlib.metadata import EntryPoint, distributions
from typing import Final
from urllib.parse import parse_qsl

from crdt_mor.errors import CrdtMorError, InvalidInputError, UnknownPayloadError
from crdt_mor.laws.allowed import Carried, allowed_class, import_payload, require_class
from crdt_mor.laws.remade import require_remade
from crdt_mor.merge.payload import Payload
from crdt_mor.model.merge_spec import PayloadRef

GROUP: Final = "crdt_mor.payloads"
SHIPPED: Final = {
    name: f"crdt_mor.payloads:{cls}"
    for name, cls in {
        "last/1": "Last",
        "latest_by/1": "LatestBy",
        "first/1": "First",
        "max/1": "Max",
        "min/1": "Min",
        "any/1": "Any",
        "all/1": "All",
        "counter/1": "Counter",
        "grow_set/1": "GrowOnlySet",
        "or_set/1": "ORSet",
        "mv_register/1": "MVRegister",
        "map_last/1": "MapLast",
        "event_list/1": "EventList",
        "distinct/1": "Distinct",
        "quantiles/1": "Quantiles",
    }.items()
}
"""The entry points of this package. A copy of its folder, as in a zip file on Spark's path, has no metadata of them."""


def payload_of(payload: Payload | str) -> Payload:
    """The payload that a user names: a payload itself, `counter`, `counter/1`, `latest_by?by=at` or `module:Class`."""
    if isinstance(payload, Payload):
        return payload
    if not isinstance(payload, str):
        text = "a payload is an object like crdt_mor.payloads.Counter(), or its name"
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
            f"no installed package has a payload of this name; known are {sorted(known)}, or give module:Class. "
            f"payload={payload!r}"
        )
    return _make(_load(entry), _arguments(query), payload)


def reference(payload: Payload, kept: Collection[PayloadRef] = ()) -> PayloadRef:
    """What a table stores of a payload.

    Refuses a payload that no other process could find or make again, or that breaks its laws. The laws are not checked
    again for the payloads of crdt_mor and of a table that exists.

    kept: the payloads of the table that exists.
    """
    cls = type(payload)
    name = getattr(cls, "name", None)
    if not isinstance(name, str):
        raise InvalidInputError(f"a payload has a name, like name = 'acme.longest/1'. payload={cls.__qualname__}")
    entry = _provided().get(name)
    if entry is not None:
        _require_own_name(cls, entry)
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
    require_remade(payload, parameters)
    if not _ships(entry) and ref not in [replace(old, fingerprint="") for old in kept]:
        from crdt_mor.laws.check import check_laws, raised_at_edges

        check_laws(payload)
        for raised in raised_at_edges(payload):
            warnings.warn(
                f"{name}: {raised}. A write takes such a value, and then its key cannot be read: take it, or raise in "
                "lift, and writes refuse it (docs/payloads.md)",
                stacklevel=2,
            )
    from crdt_mor.laws.fingerprint import fingerprint

    ref = replace(ref, fingerprint=fingerprint(payload))
    resolve(ref)  # as every other process will do
    return ref


@lru_cache(maxsize=256)
def resolve(ref: PayloadRef) -> Payload:
    """The payload that `ref` names. Raises `UnknownPayloadError` if it cannot be found, or means something else."""
    from crdt_mor.laws.fingerprint import fingerprint

    entry = _provided().get(ref.name)
    cls = _load(entry) if entry is not None else allowed_class(ref)
    name = getattr(cls, "name", None)
    if name != ref.name:  # before anything is made of it: what the table says of parameters is for that payload alone
        raise UnknownPayloadError(
            f"the class found is another payload: install the version of its package that the table was made with. "
            f"wanted={ref.name} found={name} class={cls.__module__}:{cls.__qualname__}"
        )
    try:
        payload = _make(cls, ref.arguments, str(ref))
        means = fingerprint(payload)
    except CrdtMorError:
        raise
    except Exception as error:
        raise UnknownPayloadError(
            f"this payload fails with the parameters that the table says: {type(error).__name__}: {error}. Install the "
            f"version of its package that the table was made with. payload={ref}"
        ) from error
    if means != ref.fingerprint:
        raise UnknownPayloadError(
            "this payload means something else than when the table was made, so that answers would change: what means "
            "something else needs another name, like acme.longest/2. Install the version that the table was made with. "
            f"payload={ref} fingerprint={means} table={ref.fingerprint} class={cls.__module__}:{cls.__qualname__}"
        )
    if not payload.vectorised:
        warnings.warn(
            f"{ref.name} says join alone, so values are merged one by one in Python, a hundred times slower: write "
            "merge, the same as a polars expression (docs/payloads.md)",
            stacklevel=2,
        )
    return payload


def carried(refs: Iterable[PayloadRef]) -> Carried:
    """The classes of a table's payloads that its pickled views bring along.

    Left out are the payloads that ship with crdt_mor, which every process has, and those that cannot be found here.
    """
    classes = []
    for ref in refs:
        if not _ships(_provided().get(ref.name)):
            with suppress(CrdtMorError):
                classes.append(type(resolve(ref)))
    return Carried(classes)


@cache
def _provided() -> dict[str, EntryPoint]:
    """The entry points of installed packages and of this one; of two with one name, the first on the path counts."""
    entries: dict[str, EntryPoint] = {}
    for package in distributions(path=_installed(sys.path)):
        for entry in package.entry_points.select(group=GROUP):
            entries.setdefault(entry.name, entry)
    for name, value in SHIPPED.items():
        entries.setdefault(name, EntryPoint(name, value, GROUP))
    return entries


def _installed(path: list[str]) -> list[str]:
    """The search path without the current folder, unless the user has put it on PYTHONPATH."""
    here = os.path.realpath(os.getcwd())
    python_path = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    on_python_path = {os.path.realpath(folder) for folder in python_path if folder}
    return [folder for folder in path if folder and (os.path.realpath(folder) != here or here in on_python_path)]


def _ships(entry: EntryPoint | None) -> bool:
    return entry is not None and entry.value == SHIPPED.get(entry.name)


def _load(entry: EntryPoint) -> type[Payload]:
    """The class of an entry point."""
    try:
        loaded = entry.load()
    except (ImportError, AttributeError) as error:
        raise UnknownPayloadError(
            f"the package that provides this payload is broken or hidden: {error}. Install it anew, or rename what "
            f"hides it. payload={entry.name} class={entry.value} package={entry.dist and entry.dist.name}"
        ) from error
    return require_class(loaded, entry.value)


def _require_own_name(cls: type[Payload], entry: EntryPoint) -> None:
    """Raise where an installed package provides another class of this name, which processes would use instead."""
    provided = _load(entry)
    if (cls.__module__, cls.__qualname__) != (provided.__module__, provided.__qualname__):
        package = "crdt_mor" if _ships(entry) else entry.dist and entry.dist.name
        raise InvalidInputError(
            "a payload of an installed package has this name already, and tables would use that one: give the class "
            f"a name of its own, like name = 'acme.{entry.name}'. payload={cls.__module__}:{cls.__qualname__} "
            f"name={entry.name} package={package}"
        )


def _make(cls: type[Payload], arguments: dict[str, object], text: str) -> Payload:
    try:
        return cls(**arguments)
    except TypeError as error:
        raise InvalidInputError(f"the payload does not take these parameters: {error}. payload={text}") from error


def _arguments(query: str) -> dict[str, object]:
    """The arguments in `by=at&lg_k=12`; a value that is not JSON is text."""
    arguments: dict[str, object] = {}
    for name, text in parse_qsl(query, keep_blank_values=True):
        try:
            arguments[name] = json.loads(text)
        except ValueError:
            arguments[name] = text
    return arguments
