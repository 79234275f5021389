"""Decide which payload classes a table may name. A table is data, and never imports anything.

Importing runs code, and a table may come from a stranger. A class `module:Class` is therefore only used if this process
has it already:

    import acme.payloads                    the program has imported the module
    allow_payloads("acme.payloads")         the program names it; also `Table(uri, payloads=[...])`, `--payloads`
                                            on the command line, and the option `payloads` of the Spark source
    CRDT_MOR_PAYLOADS=acme.payloads,...     an environment variable names it, also for child processes

A pickled view carries its table's classes by reference (`Carried`).
"""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Iterable
from types import ModuleType
from typing import Final

from crdt_mor.errors import InvalidInputError, PayloadNotAllowedError, UnknownPayloadError
from crdt_mor.merge.payload import Payload
from crdt_mor.model.merge_spec import PayloadRef

VARIABLE: Final = "CRDT_MOR_PAYLOADS"

_named: dict[str, type[Payload]] = {}
"""Named or carried classes, by payload name."""

_variable_read = ""


def allow_payloads(*payloads: str | type[Payload]) -> None:
    """Let tables use these payloads.

    The modules are imported now. This holds for all tables of this process and for processes that it starts later.

    Args:
        payloads: Classes, module names (`acme.payloads`), or single classes (`module:Class`).

    Raises:
        UnknownPayloadError: A payload cannot be imported.
    """
    for payload in payloads:
        for cls in _classes(payload):
            _named[cls.name] = cls
    paths = [path for one in payloads if (path := one if isinstance(one, str) else _path_for_others(one))]
    if paths:
        known = _listed(os.environ.get(VARIABLE, ""))
        os.environ[VARIABLE] = ",".join(dict.fromkeys([*known, *paths]))


def import_payload(path: str) -> type[Payload]:
    """Import the class at `module:Class`: only for a user's path, never for a table's."""
    module, _, name = path.partition(":")
    try:
        imported: object = importlib.import_module(module)
        for part in name.split("."):
            imported = getattr(imported, part)
    except (ImportError, AttributeError, ValueError) as error:
        raise UnknownPayloadError(
            f"the payload cannot be imported: {error}. Install its package, or put its folder on PYTHONPATH. "
            f"payload={path}"
        ) from error
    return require_class(imported, path)


def require_class(candidate: object, path: str) -> type[Payload]:
    if not (isinstance(candidate, type) and issubclass(candidate, Payload)):
        raise UnknownPayloadError(f"pass a payload class, a subclass of crdt_mor.Payload. payload={path}")
    return candidate


def allowed_class(ref: PayloadRef) -> type[Payload]:
    """Return the class of a payload that no installed package provides, without importing."""
    cls = _known(ref)
    if cls is None or _name_of(cls) != ref.name:
        _follow_variable()
        cls = _known(ref)
    if cls is not None:
        return cls
    if not ref.path:
        raise UnknownPayloadError(
            f"no installed package provides this payload of the table: install its package. payload={ref.name}"
        )
    module = ref.path.partition(":")[0]
    if module in sys.modules:
        raise UnknownPayloadError(
            "the imported module has no such payload class. Install its package in the table's version, or "
            f"allow the class with this name. payload={ref.path} name={ref.name}"
        )
    raise PayloadNotAllowedError(
        f"this table names a payload in a module that is not imported. If you trust its code, import {module} first, "
        f"or allow it: Table(uri, payloads=[{module!r}]), "
        f"crdt_mor.allow_payloads({module!r}), --payloads {module} on the command line, "
        f'.option("payloads", "{module}") in Spark, or the environment variable {VARIABLE}={module}. '
        f"payload={ref.path} name={ref.name}"
    )


class PickledPayloads:
    """The payload classes that a table's pickled views bring to another process."""

    def __init__(self, classes: Iterable[type[Payload]] = ()) -> None:
        self.classes = tuple(classes)

    def __reduce__(self) -> tuple[object, ...]:
        return _named_again, self.classes


def _named_again(*classes: type[Payload]) -> PickledPayloads:
    for cls in classes:
        _named.setdefault(cls.name, cls)
    return PickledPayloads(classes)


# --- inside -----------------------------------------------------------------------------------------------------------


def _classes(payload: str | type[Payload]) -> list[type[Payload]]:
    """Return the payload classes that a user named; of a module, all with a payload name."""
    if isinstance(payload, type) and issubclass(payload, Payload):
        return [_with_name(payload, payload.__qualname__)]
    if not isinstance(payload, str):
        raise InvalidInputError(
            f"pass payloads as classes, modules like 'acme.payloads', or module:Class. got={payload!r}"
        )
    if ":" in payload:
        return [_with_name(import_payload(payload), payload)]
    try:
        module = importlib.import_module(payload)
    except (ImportError, ValueError) as error:
        raise UnknownPayloadError(
            f"the module of payloads cannot be imported: {error}. Install its package, or put its folder on "
            f"PYTHONPATH. module={payload}"
        ) from error
    classes = [cls for cls in vars(module).values() if isinstance(cls, type) and issubclass(cls, Payload)]
    return [cls for cls in classes if isinstance(cls.__dict__.get("name"), str)]


def _with_name(cls: type[Payload], path: str) -> type[Payload]:
    if not isinstance(_name_of(cls), str):
        raise InvalidInputError(f"give the payload a name, such as name = 'acme.longest/1'. payload={path}")
    return cls


def _path_for_others(cls: type[Payload]) -> str:
    """Return the class's path for other processes; "" if they cannot import it."""
    path = f"{cls.__module__}:{cls.__qualname__}"
    return "" if path.startswith("__main__:") or "<locals>" in path else path


def _listed(text: str) -> list[str]:
    return [name for part in text.split(",") if (name := part.strip())]


def _follow_variable() -> None:
    global _variable_read  # noqa: PLW0603  state of the process
    text = os.environ.get(VARIABLE, "")
    if text == _variable_read:
        return
    for path in _listed(text):
        try:
            for cls in _classes(path):
                _named.setdefault(cls.name, cls)
        except UnknownPayloadError as error:
            raise UnknownPayloadError(f"{error} The environment variable {VARIABLE} names it.") from error
    _variable_read = text


def _known(ref: PayloadRef) -> type[Payload] | None:
    """Return this process's class for `ref`, else the class at its path for the error."""
    at_path = _in_process(ref.path)
    return at_path if at_path is not None and _name_of(at_path) == ref.name else _named.get(ref.name, at_path)


def _name_of(cls: type[Payload]) -> object:
    return getattr(cls, "name", None)


def _in_process(path: str) -> type[Payload] | None:
    """Return the payload class at a path if its module is imported. Runs no code, not even `__getattr__`."""
    module, _, name = path.partition(":")
    reached: object = sys.modules.get(module)
    for part in name.split("."):
        if isinstance(reached, ModuleType):
            members = ModuleType.__getattribute__(reached, "__dict__")
        elif isinstance(reached, type):
            members = type.__getattribute__(reached, "__dict__")
        else:
            return None
        reached = members.get(part)
    return reached if isinstance(reached, type) and issubclass(reached, Payload) else None
