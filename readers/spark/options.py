"""The options of a read, as users set them with `.option(...)`, checked before anything is read.

a snapshot       asOf, consistency, filter, meta, pushdown, names = now | then
changes          changes = merged | images | raw, since, until, expired, consistency, names
a stream         as changes, without an end or names; reader; maxCommitsPerTrigger, maxFilesPerTrigger,
                 maxRowsPerTrigger, maxBytesPerTrigger
any of them      path, columns; payloads = the modules of your own payloads, as in `crdt_mor.allow_payloads`
                 storage.NAME = an option of the object store, as in `storage_options` of `crdt_mor.Table`,
                 and none of its keys
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType

from crdt_mor import InvalidInputError, Payload, Point, Table, parse_point
from crdt_mor.errors import page
from crdt_mor.readers.spark.near_options import instead
from crdt_mor.store import secret_options, storage_options

Payloads = Sequence[str | type[Payload]]
"""Custom payloads, as for `Table`."""

CHANGES = ("merged", "images", "raw")

SNAPSHOT_ONLY = ("asOf", "filter", "meta", "pushdown")
CHANGES_ONLY = ("changes", "since", "until", "expired")
LIMITS = MappingProxyType(
    {
        "maxCommitsPerTrigger": "commits",
        "maxFilesPerTrigger": "files",
        "maxRowsPerTrigger": "rows",
        "maxBytesPerTrigger": "bytes",
    }
)
UNITS = MappingProxyType({"rows": 1000, "bytes": 1024})
"""The meaning of a `k` suffix, for limits with units."""

CATALOG = frozenset({"owner", "provider", "location", "external", "comment", "collation", "is_managed_location"})
"""Options that Spark adds while it creates a catalog table."""

STORAGE = "storage."
"""Options with this prefix belong to the object store."""

NAMES = ("now", "then")

KNOWN = ("path", "columns", "payloads", "consistency", "names", "reader", *SNAPSHOT_ONLY, *CHANGES_ONLY, *LIMITS)


@dataclass(frozen=True)
class ReadOptions:
    path: str
    columns: list[str] | None = None
    payloads: tuple[str, ...] = ()
    consistency: str = "latest"
    names: str = "now"
    as_of: Point | None = None
    filter: str | None = None
    meta: bool = False
    pushdown: bool = False
    changes: str | None = None
    since: Point | None = None
    until: Point | None = None
    expired: bool = False
    reader: str | None = None
    limits: Mapping[str, int] = field(default_factory=dict)
    storage: Mapping[str, str] | None = None

    @classmethod
    def of(cls, options: Mapping[str, str]) -> ReadOptions:
        of_users = {name: value for name, value in options.items() if name.lower() not in CATALOG}
        of_users, stored = without_storage(of_users)
        settings = by_name(of_users, KNOWN, "read")
        if "path" not in settings:
            raise InvalidInputError(
                "say where the table is: .load(path), or OPTIONS (path '...') of a temporary view. Options of CREATE "
                "TABLE do not reach a Python data source: DROP TABLE the name, then "
                "crdt_mor.readers.spark.register_path(spark, name, path), or named_source without Python code, and "
                "CREATE TABLE name USING name"
            )
        changes = settings.get("changes")
        if changes is None and not {"since", "until", "expired"}.isdisjoint(settings):
            changes = "merged"
        if changes is not None:
            _one_of("changes", changes, CHANGES)
            _refuse(settings, SNAPSHOT_ONLY, "belongs to a snapshot, and these are changes")
        return cls(
            path=settings["path"],
            columns=names_of("columns", settings),
            payloads=payloads(settings),
            consistency=settings.get("consistency", "latest"),
            names=_one_of("names", settings.get("names", "now"), NAMES),
            as_of=_point("asOf", settings.get("asOf")),
            filter=settings.get("filter"),
            meta=flag("meta", settings),
            pushdown=flag("pushdown", settings),
            changes=changes,
            since=_point("since", settings.get("since"), checkpoint=True),
            until=_point("until", settings.get("until"), checkpoint=True),
            expired=flag("expired", settings),
            reader=settings.get("reader"),
            limits={word: _limit(name, word, settings[name]) for name, word in LIMITS.items() if name in settings},
            storage=storage_options(settings["path"], stored or None),
        )

    def open(self) -> Table:
        return Table(self.path, payloads=self.payloads, storage_options=self.storage)

    def for_batch(self) -> ReadOptions:
        limits = [name for name, word in LIMITS.items() if word in self.limits]
        if limits:
            raise InvalidInputError(f"these limit the batches of a stream: leave them out of a read. given={limits}")
        if self.reader is not None:
            raise InvalidInputError(
                "only a stream has a named reader, as only a stream says when it has finished: leave the option reader "
                f"out of a read. reader={self.reader!r}"
            )
        return self

    def for_stream(self) -> ReadOptions:
        of_batches = {"asOf": self.as_of, "filter": self.filter, "until": self.until}
        of_batches |= {"meta": self.meta or None, "pushdown": self.pushdown or None}
        of_batches |= {"names": None if self.names == "now" else self.names}
        settings = [name for name, value in of_batches.items() if value is not None]
        _refuse(settings, of_batches, "has no place in a stream")
        return self


def without_storage(options: Mapping[str, str]) -> tuple[dict[str, str], dict[str, str]]:
    """Split off the options of the object store; raise `InvalidInputError` for keys among them.

    Spark stores options in plans and its event log. It hides only names that look like secrets to it, and S3 access
    keys and Azure account keys do not.
    """
    keys = secret_options(name.lower().removeprefix(STORAGE) for name in options)
    if keys:
        raise InvalidInputError(
            "keys of an object store are no options of Spark, whose plans and event log show them: leave them out, and "
            "make new ones where such a log was kept. Give the machines a role, set the variables of the same names "
            "where the driver and the workers run, or name a function that gives keys, "
            f"storage.credential_provider = module:function. {page('spark')} has each way. given={', '.join(keys)}"
        )
    stored = {name[len(STORAGE) :]: value for name, value in options.items() if name.lower().startswith(STORAGE)}
    return {name: value for name, value in options.items() if not name.lower().startswith(STORAGE)}, stored


def payloads(settings: Mapping[str, str]) -> tuple[str, ...]:
    """Parse modules and classes, such as `acme.payloads,acme.other:Longest`."""
    return tuple(name for part in settings.get("payloads", "").split(",") if (name := part.strip()))


def names_of(name: str, settings: Mapping[str, str]) -> list[str] | None:
    return [one.strip() for one in settings[name].split(",")] if name in settings else None


def by_name(options: Mapping[str, str], known: Sequence[str], what: str) -> dict[str, str]:
    """Return Spark's options under their user-visible names; raise `InvalidInputError` for unknown ones."""
    names = {name.lower(): name for name in known}
    options = {name.lower(): value for name, value in options.items()}
    unknown = sorted(options.keys() - names.keys())
    if unknown:
        unset = [names[name] for name in names if name not in options]
        ways = instead({name: options[name] for name in unknown}, unset)
        raise InvalidInputError(
            f"{ways and ways + ': '}no such options of a {what}; there are {', '.join(known)}. unknown={unknown}"
        )
    return {names[name]: value for name, value in options.items()}


def _refuse(settings: Iterable[str], misplaced: Collection[str], why: str) -> None:
    refused = [name for name in settings if name in misplaced]
    if refused:
        raise InvalidInputError(f"{', '.join(refused)} {why}: leave it out, and filter the frame with .where(...)")


def _one_of(name: str, value: str, known: tuple[str, ...]) -> str:
    if value not in known:
        raise InvalidInputError(f"{name} is one of {', '.join(known)}. {name}={value!r}")
    return value


def flag(name: str, settings: Mapping[str, str]) -> bool:
    return _one_of(name, settings.get(name, "false").lower(), ("true", "false")) == "true"


def _limit(name: str, word: str, value: str) -> int:
    """Parse a number; if it counts rows or bytes, with an optional Spark unit: `10m`, `1g`, `64mb`."""
    found = re.fullmatch(r"([0-9]+)(?:([kmgt])b?|b)?", value.strip().lower())
    unit = UNITS.get(word)
    if found is None or int(found[1]) == 0 or (unit is None and not value.strip().isdigit()):
        units = "" if unit is None else ", or one with k, m, g or t behind it, like 10m"
        raise InvalidInputError(f"{name} is a number above 0{units}. {name}={value!r}")
    factor: int = (unit or 1) ** " kmgt".index(found[2] or " ")
    return int(found[1]) * factor


def _point(name: str, value: str | None, *, checkpoint: bool = False) -> Point | None:
    return None if value is None else parse_point(value, checkpoint=checkpoint, name=name)
