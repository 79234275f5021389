"""Which payload classes a table may name: what it says is data, and data never imports anything.

To import a module is to run it, and a table may come from anybody. So a class that a table names as `module:Class` is
looked for among what this process has already, and there are three ways in which a class gets there:

    import acme.payloads                    the program has imported the module itself
    allow_payloads("acme.payloads")         the program names it; so do `Table.open(uri, payloads=[...])`, the command
                                            line's `--payloads` and the option `payloads` of the Spark source
    CRDT_MOR_PAYLOADS=acme.payloads,...     an environment variable of the process names it

What is named by its module or its path is passed on in that variable to the processes that this one starts. A pickled
view of a table carries the classes of the table's payloads (`Carried`), by reference as pickles do.
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
"""Classes that were named or carried here, by the name of the payload."""

_variable_read = ""
"""The value of the environment variable that has been followed."""


def allow_payloads(*payloads: str | type[Payload]) -> None:
    """Let tables use these payloads: classes, modules by name (`acme.payloads`), or one class of them (`module:Class`).

    Modules are imported, now. Holds for every table of this process; what can be imported by others holds for the
    processes that this one starts from now on, too. Raises `UnknownPayloadError` for what cannot be imported.
    """
    for payload in payloads:
        for cls in _classes(payload):
            _named[cls.name] = cls
    paths = [path for one in payloads if (path := one if isinstance(one, str) else _path_for_others(one))]
    if paths:
        known = _listed(os.environ.get(VARIABLE, ""))
        os.environ[VARIABLE] = ",".join(dict.fromkeys([*known, *paths]))


def import_payload(path: str) -> type[Payload]:
    """The class at `module:Class`, imported: only for a path that a user of this process gave, never for a table's."""
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
    """The candidate, if it is a payload class; raises `UnknownPayloadError` otherwise."""
    if not (isinstance(candidate, type) and issubclass(candidate, Payload)):
        raise UnknownPayloadError(f"this is not a payload class, a subclass of crdt_mor.Payload. payload={path}")
    return candidate


def allowed_class(ref: PayloadRef) -> type[Payload]:
    """The class of a payload that no installed package provides; imports nothing that only the table names."""
    cls = _known(ref)
    if cls is None or _name_of(cls) != ref.name:
        _follow_variable()
        cls = _known(ref)
    if cls is not None:
        return cls
    if not ref.path:
        raise UnknownPayloadError(
            f"this table needs a payload that no installed package provides: install the one that has it. "
            f"payload={ref.name}"
        )
    module = ref.path.partition(":")[0]
    if module in sys.modules:
        raise UnknownPayloadError(
            "the module of this payload is imported here and has no such payload class. Install its package in the "
            f"version that the table was made with, or allow the class that has its name now. payload={ref.path} "
            f"name={ref.name}"
        )
    raise PayloadNotAllowedError(
        f"this table names a payload in a module that this program has not imported, and importing it would run its "
        f"code. If you trust it, import {module} before, or allow it: Table.open(uri, payloads=[{module!r}]), "
        f"crdt_mor.allow_payloads({module!r}), --payloads {module} on the command line, "
        f'.option("payloads", "{module}") in Spark, or the environment variable {VARIABLE}={module}. '
        f"payload={ref.path} name={ref.name}"
    )


class Carried:
    """The payload classes of a table, as its pickled views bring them along: they are known where it is unpickled."""

    def __init__(self, classes: Iterable[type[Payload]] = ()) -> None:
        self.classes = tuple(classes)

    def __reduce__(self) -> tuple[object, ...]:
        """Classes are pickled by reference, so that unpickling imports what the program that pickled them had."""
        return _carried, self.classes


def _carried(*classes: type[Payload]) -> Carried:
    for cls in classes:
        _named.setdefault(cls.name, cls)
    return Carried(classes)


# --- inside -----------------------------------------------------------------------------------------------------------


def _classes(payload: str | type[Payload]) -> list[type[Payload]]:
    """The payload classes that a user means: a class itself, `module:Class`, or all of a module that have a name."""
    if isinstance(payload, type) and issubclass(payload, Payload):
        return [_with_name(payload, payload.__qualname__)]
    if not isinstance(payload, str):
        raise InvalidInputError(f"payloads are classes, modules like 'acme.payloads', or module:Class. got={payload!r}")
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
        raise InvalidInputError(f"a payload has a name, like name = 'acme.longest/1'. payload={path}")
    return cls


def _path_for_others(cls: type[Payload]) -> str:
    """Where other processes find the class; empty if they cannot."""
    path = f"{cls.__module__}:{cls.__qualname__}"
    return "" if path.startswith("__main__:") or "<locals>" in path else path


def _listed(text: str) -> list[str]:
    return [name for part in text.split(",") if (name := part.strip())]


def _follow_variable() -> None:
    """Allow what the environment variable names, once; a table that needs none of it never comes here."""
    global _variable_read  # noqa: PLW0603  what a process has read of its environment is the process's
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
    """The class that `ref` names, if this process has it: at its path, else one that was allowed by its name.

    If there is neither, the class at the path that has another name, so that an error can name it.
    """
    at_path = _in_process(ref.path)
    return at_path if at_path is not None and _name_of(at_path) == ref.name else _named.get(ref.name, at_path)


def _name_of(cls: type[Payload]) -> object:
    return getattr(cls, "name", None)


def _in_process(path: str) -> type[Payload] | None:
    """The payload class at a path, if its module has been imported.

    Runs no code at all: no `__getattr__` of a module, and no loader of a module that is loaded when it is looked at.
    """
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
