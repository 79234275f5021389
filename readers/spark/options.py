"""What a user may say with `.option(...)`, checked before anything is read.

    a snapshot       asOf, consistency, filter, meta, pushdown
    changes          changes = merged | images | raw, since, until, consistency
    a stream         as changes, without an end; maxCommitsPerTrigger, maxFilesPerTrigger, maxBytesPerTrigger
    any of them      path, columns; payloads = the modules of your own payloads, as in `crdt_mor.allow_payloads`

Spark hands options over in lower case and as text.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from types import MappingProxyType

from crdt_mor import InvalidInputError, Table, parse_point

Point = str | int | datetime
"""A checkpoint, a version, a completion time or a moment."""

CHANGES = ("merged", "images", "raw")

SNAPSHOT_ONLY = ("asOf", "filter", "meta", "pushdown")
CHANGES_ONLY = ("changes", "since", "until")
LIMITS = MappingProxyType(
    {"maxCommitsPerTrigger": "commits", "maxFilesPerTrigger": "files", "maxBytesPerTrigger": "bytes"}
)
CATALOG = frozenset({"owner", "provider", "location", "external", "comment", "collation", "is_managed_location"})
"""What Spark itself says of a table while it creates it in its catalog."""

KNOWN = ("path", "columns", "payloads", "consistency", *SNAPSHOT_ONLY, *CHANGES_ONLY, *LIMITS)


@dataclass(frozen=True)
class ReadOptions:
    """What is to be read of which table. `changes`: None for a snapshot, or where a stream leaves it to us."""

    path: str
    columns: list[str] | None = None
    payloads: tuple[str, ...] = ()
    consistency: str = "latest"
    as_of: Point | None = None
    filter: str | None = None
    meta: bool = False
    pushdown: bool = False
    changes: str | None = None
    since: Point | None = None
    until: Point | None = None
    limits: Mapping[str, int] = field(default_factory=dict)

    @classmethod
    def of(cls, given: Mapping[str, str]) -> ReadOptions:
        """The options of a read; raises `InvalidInputError` for those that mean nothing."""
        ours = {name: value for name, value in given.items() if name.lower() not in CATALOG}
        said = by_name(ours, KNOWN, "read")
        if "path" not in said:
            raise InvalidInputError(
                "say where the table is: .load(path), or OPTIONS (path '...') of a temporary view. Options of CREATE "
                "TABLE do not reach a Python data source: crdt_mor.readers.spark.register_path(spark, name, path) is "
                "the way"
            )
        changes = said.get("changes")
        if changes is None and ("since" in said or "until" in said):
            changes = "merged"
        if changes is not None:
            _one_of("changes", changes, CHANGES)
            _refuse(said, SNAPSHOT_ONLY, "belongs to a snapshot, and these are changes")
        return cls(
            path=said["path"],
            columns=[name.strip() for name in said["columns"].split(",")] if "columns" in said else None,
            payloads=payloads(said),
            consistency=said.get("consistency", "latest"),
            as_of=_point("asOf", said.get("asOf")),
            filter=said.get("filter"),
            meta=flag("meta", said),
            pushdown=flag("pushdown", said),
            changes=changes,
            since=_point("since", said.get("since"), checkpoint=True),
            until=_point("until", said.get("until"), checkpoint=True),
            limits={word: _number(name, said[name]) for name, word in LIMITS.items() if name in said},
        )

    def open(self) -> Table:
        """The table."""
        return Table.open(self.path, payloads=self.payloads)

    def for_batch(self) -> ReadOptions:
        """These options, for a batch; raises where one of them only has a meaning in a stream."""
        given = [name for name, word in LIMITS.items() if word in self.limits]
        if given:
            raise InvalidInputError(f"these limit the batches of a stream: leave them out of a read. given={given}")
        return self

    def for_stream(self) -> ReadOptions:
        """These options, for a stream; raises where one of them has no meaning in a stream."""
        said = {"asOf": self.as_of, "filter": self.filter, "until": self.until}
        said |= {"meta": self.meta or None, "pushdown": self.pushdown or None}
        _refuse({name: value for name, value in said.items() if value is not None}, said, "has no place in a stream")
        return self


def payloads(said: Mapping[str, str]) -> tuple[str, ...]:
    """Modules and classes, `acme.payloads,acme.other:Longest`."""
    return tuple(name for part in said.get("payloads", "").split(",") if (name := part.strip()))


def by_name(given: Mapping[str, str], known: Sequence[str], what: str) -> dict[str, str]:
    """Options as Spark hands them over, by the names that users write; raises `InvalidInputError` for unknown ones."""
    names = {name.lower(): name for name in known}
    given = {name.lower(): value for name, value in given.items()}
    unknown = sorted(given.keys() - names.keys())
    if unknown:
        raise InvalidInputError(f"no such options of a {what}; there are {', '.join(known)}. unknown={unknown}")
    return {names[name]: value for name, value in given.items()}


def _refuse(said: Mapping[str, object], names: object, why: str) -> None:
    given = [name for name in said if name in names]  # type: ignore[operator]
    if given:
        raise InvalidInputError(f"{', '.join(given)} {why}: leave it out, and filter the frame with .where(...)")


def _one_of(name: str, value: str, known: tuple[str, ...]) -> str:
    if value not in known:
        raise InvalidInputError(f"{name} is one of {', '.join(known)}. {name}={value!r}")
    return value


def flag(name: str, said: Mapping[str, str]) -> bool:
    """Whether an option is true; false where nothing is said."""
    return _one_of(name, said.get(name, "false").lower(), ("true", "false")) == "true"


def _number(name: str, value: str) -> int:
    if not (value.isascii() and value.isdigit() and int(value) > 0):
        raise InvalidInputError(f"{name} is a number above 0. {name}={value!r}")
    return int(value)


def _point(name: str, value: str | None, *, checkpoint: bool = False) -> Point | None:
    return None if value is None else parse_point(value, checkpoint=checkpoint, name=name)
