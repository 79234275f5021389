"""Which payload classes a table may name: what it says is data, and data never imports anything.

To import a module is to run it, and a table may come from anybody. So a class that a table names as `module:Class` is
looked for among what this process has already, and there are three ways in which a class gets there:

    import acme.payloads                    the program has imported the module itself
    allow_payloads("acme.payloads")         the program names it; so do `Table.open(uri, payloads=[...])`, the command
                                            line's `--payloads` and the option `payloads` of the Spark source
    CRDT_MOR_PAYLOADS=acme.payloads,...     whoever starts the process names it, in an environment variable

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
    for given in payloads:
        for cls in _classes(given):
            _named[cls.name] = cls
    paths = [path for given in payloads if (path := given if isinstance(given, str) else _path_for_others(given))]
    if paths:
        known = _listed(os.environ.get(VARIABLE, ""))
        os.environ[VARIABLE] = ",".join(dict.fromkeys([*known, *paths]))


def import_payload(path: str) -> type[Payload]:
    """The class at `module:Class`, imported: only for a path that a user of this process gave, never for a table's."""
    module, _, name = path.partition(":")
    try:
        found: object = importlib.import_module(module)
        for part in name.split("."):
            found = getattr(found, part)
    except (ImportError, AttributeError, ValueError) as error:
        raise UnknownPayloadError(
            f"the payload cannot be imported: {error}. Install its package, or put its folder on PYTHONPATH. "
            f"payload={path}"
        ) from error
    return require_class(found, path)


def require_class(found: object, path: str) -> type[Payload]:
    """`found`, if it is a payload class."""
    if not (isinstance(found, type) and issubclass(found, Payload)):
        raise UnknownPayloadError(f"this is not a payload class, a subclass of crdt_mor.Payload. payload={path}")
    return found


def allowed_class(ref: PayloadRef) -> type[Payload]:
    """The class of a payload that no installed package provides; imports nothing that only the table names."""
    found = _known(ref)
    if found is None or _name_of(found) != ref.name:
        _follow_variable()
        found = _known(ref)
    if found is not None:
        return found
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


def _classes(given: str | type[Payload]) -> list[type[Payload]]:
    if isinstance(given, type) and issubclass(given, Payload):
        return [_with_name(given, given.__qualname__)]
    if not isinstance(given, str):
        raise InvalidInputError(f"payloads are classes, modules like 'acme.payloads', or module:Class. got={given!r}")
    if ":" in given:
        return [_with_name(import_payload(given), given)]
    try:
        module = importlib.import_module(given)
    except (ImportError, ValueError) as error:
        raise UnknownPayloadError(
            f"the module of payloads cannot be imported: {error}. Install its package, or put its folder on "
            f"PYTHONPATH. module={given}"
        ) from error
    found = [cls for cls in vars(module).values() if isinstance(cls, type) and issubclass(cls, Payload)]
    return [cls for cls in found if isinstance(cls.__dict__.get("name"), str)]


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
    for given in _listed(text):
        try:
            for cls in _classes(given):
                _named.setdefault(cls.name, cls)
        except UnknownPayloadError as error:
            raise UnknownPayloadError(f"{error} The environment variable {VARIABLE} names it.") from error
    _variable_read = text


def _known(ref: PayloadRef) -> type[Payload] | None:
    """The class of this name at the path of `ref`, or the one that was allowed by that name; else what is at the path,
    which has another name."""
    found = _in_process(ref.path)
    return found if found is not None and _name_of(found) == ref.name else _named.get(ref.name, found)


def _name_of(cls: type[Payload]) -> object:
    return getattr(cls, "name", None)


def _in_process(path: str) -> type[Payload] | None:
    """The payload class at a path, if its module has been imported.

    Runs no code at all: no `__getattr__` of a module, and no loader of a module that is loaded when it is looked at.
    """
    module, _, name = path.partition(":")
    found: object = sys.modules.get(module)
    for part in name.split("."):
        if isinstance(found, ModuleType):
            members = ModuleType.__getattribute__(found, "__dict__")
        elif isinstance(found, type):
            members = type.__getattribute__(found, "__dict__")
        else:
            return None
        found = members.get(part)
    return found if isinstance(found, type) and issubclass(found, Payload) else None
