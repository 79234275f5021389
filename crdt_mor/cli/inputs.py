"""Parse command arguments: names, points, tokens, merges and payloads."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Literal

import typer

import crdt_mor as mor
from crdt_mor.cli.wording import in_options
from crdt_mor.ground.clock import SystemEnvironment
from crdt_mor.model.numbers import whole_number
from crdt_mor.model.policies import duration_ms
from crdt_mor.store.addresses import place_of
from crdt_mor.store.options import shared

if TYPE_CHECKING:
    from crdt_mor.model.partition_functions import PartitionFunction

_PARTIAL = re.compile(r"partial_update(/1)?(\?(nulls=(?P<nulls>value|keep))?&?(unavailable=(?P<unavailable>.+))?)?")


_QUOTED = r'"(?:[^"]|"")+"'
_LISTED = re.compile(rf"(\s*{_QUOTED}\s*|[^,]*)(?:,|$)")
_LEVELS = re.compile(rf"(\s*{_QUOTED}\s*|\s*\w+\([^()]*\)\s*|[^,]*)(?:,|$)")
_PAIR = re.compile(rf"(\s*{_QUOTED}\s*(?:,[^=]*)?)=(.*)", re.DOTALL)
_RENAMED = re.compile(rf"({_QUOTED}|.+?)=({_QUOTED})|({_QUOTED})=(.+)", re.DOTALL)


def split_names(text: str | None) -> list[str] | None:
    """Split `a,b`. A name with a comma is in double quotes."""
    if text is None:
        return None
    return [_unquoted(name) for match in _LISTED.finditer(text) if (name := match[1].strip())]


def partition_by(text: str | None) -> list[str | PartitionFunction] | None:
    """Split `region, bucket(id, 16)` into columns and functions. Names may be in double quotes."""
    from crdt_mor.model.partition_functions import parsed, renamed  # with pyarrow, which help does without

    if text is None:
        return None
    levels = (level for match in _LEVELS.finditer(text) if (level := match[1].strip()))
    return [*renamed(tuple(map(parsed, levels)), _unquoted)]


def name_and_value(text: str) -> tuple[str, str] | None:
    """Split `name=value`; None if invalid. A name with an equals sign is in double quotes."""
    name, value = _cut(text)
    return (_unquoted(name), value) if name else None


def _cut(text: str) -> tuple[str, str]:
    match = _PAIR.fullmatch(text)
    name, equals, value = text.partition("=") if match is None else (match[1], "=", match[2])
    return (name.strip(), value) if equals else ("", text)


def _unquoted(name: str) -> str:
    """Remove double quotes; inside them, two double quotes are one."""
    return name[1:-1].replace('""', '"') if re.fullmatch(_QUOTED, name) else name


def point(text: str | None, name: str, *, checkpoint: bool = False) -> mor.Point | None:
    """Parse a point of a table's history, or an age such as 12h: the moment that long ago."""
    if text is None:
        return None
    if (age_ms := duration_ms(text)) is not None:
        return datetime.fromtimestamp((SystemEnvironment().now_ms() - age_ms) / 1000, UTC)
    try:
        return mor.parse_point(text, checkpoint=checkpoint, name=name)
    except mor.InvalidInputError as error:
        raise typer.BadParameter(in_options(str(error), [])) from error


def renames(texts: Sequence[str] | None) -> dict[str, str] | None:
    """Parse `--rename OLD=NEW`, split at the last equals sign outside double quotes."""
    if not texts:
        return None
    pairs = [_renamed(text) for text in texts]
    wrong = [text for text, (old, new) in zip(texts, pairs, strict=True) if not old or not new]
    if wrong:
        raise typer.BadParameter(
            f"pass a column and its new name: Total Sales=sales. got={wrong[0]!r}", param_hint="--rename"
        )
    if len({old for old, _ in pairs}) < len(pairs):
        raise typer.BadParameter("rename each column once", param_hint="--rename")
    return dict(pairs)


def _renamed(text: str) -> tuple[str, str]:
    match = _RENAMED.fullmatch(text)
    old, _, new = text.rpartition("=") if match is None else (match[1] or match[3], "=", match[2] or match[4])
    return _unquoted(old), _unquoted(new)


def by_name(texts: Sequence[str] | None, name: str) -> dict[str, str]:
    pairs = [found for text in texts or () if (found := name_and_value(text)) is not None]
    if len(pairs) < len(texts or ()) or len({left for left, _ in pairs}) < len(pairs):
        raise typer.BadParameter(f"pass NAME=VALUE, with different names. got={list(texts or ())}", param_hint=name)
    return dict(pairs)


def duration(text: str, name: str) -> timedelta:
    """Parse 90s, 30m, 12h, 7d or 2w."""
    ms = duration_ms(text)
    if ms is None:
        raise typer.BadParameter(f"a duration must be like 7d, 12h, 30m or 90s. got={text!r}", param_hint=name)
    return timedelta(milliseconds=ms)


def ttl(text: str | None) -> str | tuple[str, timedelta] | None:
    pair = None if text is None else name_and_value(text)
    return text if pair is None else (pair[0], duration(pair[1], "--ttl"))


def token(text: str | None) -> tuple[str, int] | None:
    """Parse `--token app:1`."""
    if text is None:
        return None
    application, colon, number = text.rpartition(":")
    value = whole_number(number)
    if not colon or not application or value is None:
        raise typer.BadParameter(f"a token must be an application and a growing number, like loader:17. got={text!r}")
    return application, value


def merge(texts: Sequence[str]) -> mor.PartialUpdate | dict[str | tuple[str, ...], mor.Payload | str] | None:
    """Parse `--merge "partial_update?nulls=keep&unavailable=?" --merge price,at=latest_by?by=at`."""
    columns: dict[str | tuple[str, ...], mor.Payload | str] = {}
    partial: mor.PartialUpdate | None = None
    for text in texts:
        names, payload = _cut(text)
        if names and ("?" not in names or names.startswith('"')):
            if ":" in payload.partition("?")[0]:
                import_from_here()
            columns[tuple(split_names(names) or ())] = payload
            continue
        match = _PARTIAL.fullmatch(text)
        if match is None:
            raise typer.BadParameter(f"a merge must be like views=counter, or partial_update. got={text!r}")
        nulls: Literal["value", "keep"] = "keep" if match["nulls"] == "keep" else "value"
        partial = mor.PartialUpdate(nulls, unavailable=match["unavailable"])
    return columns or None if partial is None else replace(partial, columns=columns)


# --- object stores ----------------------------------------------------------------------------------------------------

_storage: dict[str, str] = {}


def use_storage(texts: Sequence[str]) -> None:
    """Store `--storage aws_region=eu-west-1` for this command."""
    _storage.clear()
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals or not name:
            raise typer.BadParameter("a store's option must be like aws_region=eu-west-1", param_hint="--storage")
        if name.lower() == "credential_provider":
            import_from_here()
        _storage[name] = value


def storage() -> dict[str, str] | None:
    return dict(_storage) or None


def storage_of(uri: str, other: str) -> dict[str, str] | None:
    """Return the storage options for `uri`; the two addresses may be at two providers."""
    here, there = place_of(uri), place_of(other)
    return storage() if here is None or there is None else shared(storage(), here.provider, [there.provider])


def opened(uri: str, beside: str | None = None) -> mor.Table:
    """Open a table. beside: the command's other address."""
    options = storage() if beside is None else storage_of(uri, beside)
    return mor.Table(uri, storage_options=options)


# --- payloads ---------------------------------------------------------------------------------------------------------


def allow(payloads: Sequence[str]) -> None:
    if payloads:
        import_from_here()
        mor.allow_payloads(*payloads)


def import_from_here() -> None:
    """Let the user's modules be imported from the current folder, after all other folders.

    Only on request: files there may have come with a stranger's table.
    """
    if os.getcwd() not in sys.path:
        sys.path.append(os.getcwd())
