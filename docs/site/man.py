"""Make the man page of the command line from its parser: `python -m docs.site.man` writes `docs/crdt-mor.1`.

The wheel installs the page as `share/man/man1/crdt-mor.1`. A test compares it with the parser.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterator
from enum import StrEnum
from pathlib import Path
from types import UnionType
from typing import Any, Final, get_args, get_origin

import typer
from typer.models import ArgumentInfo

from crdt_mor.cli.main import app

PAGE: Final = Path(__file__).resolve().parents[1] / "crdt-mor.1"
GUIDE: Final = PAGE.with_name("cli.md")

COMMON: Final = ("output", "json", "payloads", "storage", "log_level", "log_format", "debug")
"""Options of nearly every command, described once."""

HEAD: Final = r""".TH CRDT\-MOR 1 "" "crdt_mor"
.SH NAME
crdt\-mor \- lock\-free merge\-on\-read tables in Apache Hudi's format
.SH SYNOPSIS
.B crdt\-mor
.I COMMAND
.RI [ argument ]...
.RI [ option ]...
.SH COMMANDS"""


def page() -> str:
    """Return the page in roff's man macros."""
    lines, common = [HEAD], dict[str, inspect.Parameter]()
    for name, callback in commands(app).items():
        parameters = list(inspect.signature(callback).parameters.values())
        common |= {one.name: one for one in parameters if one.name in COMMON}
        arguments = " ".join(_usage(one) for one in parameters if _is_argument(one))
        lines += [f".SS crdt\\-mor {_text(name)} {_text(arguments)}".rstrip(), *_description(callback)]
        lines += [line for one in parameters if one.name not in COMMON for line in _parameter(one)]
    lines += [".SH COMMON OPTIONS", *(line for name in COMMON for line in _parameter(common[name]))]
    lines += [".SH EXIT STATUS"]
    lines += [line for code, text in _exit_codes() for line in (".TP", f".B {code}", _text(text))]
    return "\n".join(lines) + "\n"


def commands(group: typer.Typer, prefix: str = "") -> dict[str, Callable[..., Any]]:
    """Return the functions of all commands, also of groups, by name."""
    found = {
        prefix + command.callback.__name__.replace("_", "-"): command.callback
        for command in group.registered_commands
        if command.callback is not None
    }
    for inner in group.registered_groups:
        if inner.typer_instance is not None:
            found |= commands(inner.typer_instance, f"{prefix}{inner.name} ")
    return found


def _is_argument(parameter: inspect.Parameter) -> bool:
    return isinstance(_info(parameter), ArgumentInfo)


def _info(parameter: inspect.Parameter) -> Any:
    return get_args(parameter.annotation)[1]


def _kind(parameter: inspect.Parameter) -> Any:
    """Return the type without `None`."""
    kind = get_args(parameter.annotation)[0]
    inner = [one for one in get_args(kind) if one is not type(None)] if isinstance(kind, UnionType) else [kind]
    return inner[0]


def _usage(parameter: inspect.Parameter) -> str:
    name = _info(parameter).metavar or parameter.name.upper()
    shown = f"{name}..." if get_origin(_kind(parameter)) is list else name
    return shown if parameter.default is inspect.Parameter.empty else f"[{shown}]"


def _description(callback: Callable[..., Any]) -> Iterator[str]:
    for at, paragraph in enumerate((inspect.getdoc(callback) or "").split("\n\n")):
        if at:
            yield ".PP"
        yield _text(" ".join(paragraph.split()))


def _parameter(parameter: inspect.Parameter) -> Iterator[str]:
    info, default = _info(parameter), parameter.default
    if _is_argument(parameter):
        head = f"\\fI{_text(info.metavar or parameter.name.upper())}\\fR"
    else:
        given = [name for name in (info.default, *(info.param_decls or ())) if isinstance(name, str)]
        names = given or [f"--{parameter.name.replace('_', '-')}"]
        head = f"\\fB{', '.join(map(_text, names))}\\fR{_value(parameter)}"
    is_shown = default not in (None, False, True, (), inspect.Parameter.empty)
    yield from (".TP", head, _text((info.help or "") + (f" [default: {default}]" if is_shown else "")))


def _value(parameter: inspect.Parameter) -> str:
    kind, metavar = _kind(parameter), _info(parameter).metavar
    if kind is bool:
        return ""
    if metavar is None:
        is_choice = isinstance(kind, type) and issubclass(kind, StrEnum)
        metavar = "|".join(kind) if is_choice else {int: "N"}.get(kind, "TEXT")
    return f" \\fI{_text(metavar)}\\fR"


def _exit_codes() -> list[tuple[str, str]]:
    """Return the table of the guide."""
    table = GUIDE.read_text("utf-8").partition("| exit code | meaning |")[2]
    return [(code, text.replace("`", "")) for code, text in re.findall(r"^\| (\d+) \| (.*) \|$", table, re.MULTILINE)]


def _text(text: str) -> str:
    """Escape text: a hyphen stays one, no line begins with a control character, and all characters are ASCII."""
    escaped = text.replace("\\", "\\e").replace("-", "\\-")
    escaped = re.sub(r"[^\0-\x7f]", lambda found: f"\\[u{ord(found[0]):04X}]", escaped)
    return f"\\&{escaped}" if escaped.startswith((".", "'")) else escaped


if __name__ == "__main__":
    PAGE.write_text(page(), "utf-8")
