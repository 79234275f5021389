"""Check packages, the store, clocks and permissions for a table on this machine."""

from __future__ import annotations

import os
import platform
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from importlib import metadata
from typing import TYPE_CHECKING, Any, Final, Literal

from crdt_mor.api.check_store import leaving_nothing
from crdt_mor.api.opening import Opening
from crdt_mor.api.places import list_tables
from crdt_mor.api.table import Table
from crdt_mor.errors import CrdtMorError, TableNotFoundError, UnsupportedFeatureError, page
from crdt_mor.ground import machine
from crdt_mor.ground.clock import Environment, SystemEnvironment
from crdt_mor.ground.deadlines import operation
from crdt_mor.log.paths import OWN_FOLDER, PROPERTIES
from crdt_mor.log.publish import CLOCK_AHEAD_MAX_MS
from crdt_mor.model.policies import plural, words_of_age
from crdt_mor.services.listing import TableList
from crdt_mor.store.disk import is_disk, remembers_absences
from crdt_mor.store.local import LocalStore
from crdt_mor.store.open import store_at
from crdt_mor.store.protocol import Store
from crdt_mor.store.racing import KEYS_OF_A_PROBE, race

if TYPE_CHECKING:
    from crdt_mor.store.handed_stores import Handed

PACKAGE: Final = "crdt-mor"
SKEW_MS: Final = 5_000
"""Milliseconds of clock difference before a note. Buckets report seconds, delayed by a request."""

FREE_MIN: Final = 0.05
"""Free fraction of a disk below which a note is shown."""

NAMED_MAX: Final = 5
"""Most tables below a folder to name."""

_REQUIREMENT: Final = re.compile(r"([A-Za-z0-9._-]+)(?:\[[^]]*\])?\s*([^;]*)(?:;.*extra\s*==\s*['\"]([^'\"]+)['\"])?")


@dataclass(frozen=True, slots=True)
class Checkup:
    """The result of one check of `doctor`.

    Attributes:
        state: `fine`; `note` for useful information; `wrong` if a table is unsafe or unusable until repaired.
        advice: the repair, or "".
    """

    check: str
    state: Literal["fine", "note", "wrong"]
    result: str
    advice: str = ""


@operation
def doctor(
    uri: str | os.PathLike[str] | None = None,
    *,
    storage_options: Mapping[str, Any] | None = None,
    store: Store | Handed | None = None,
    environment: Environment | None = None,
) -> list[Checkup]:
    """Check the packages of this machine, and the store, clock and permissions at a table's address.

    Problems are returned, not raised. Existing objects are not changed. If permitted, a few objects are put below
    `.hoodie/.temp` and deleted, as in `check_store`.

    Args:
        uri: address of a table or of a place for one; None checks only the machine.
        storage_options: as in `Table`.
        store, environment: as in `Opening`.
    """
    found: list[Checkup] = []
    if uri is not None:
        environment = environment or SystemEnvironment()
        try:
            objects = store_at(uri, environment, storage_options, store)
            below = partial(list_tables, uri, storage_options=storage_options) if store is None else None
            found += _place(objects, os.fspath(uri), environment, below)
        except (CrdtMorError, OSError) as error:
            found.append(Checkup("store", "wrong", _said(error)))
    return [*found, *_machine(), *_extras()]


# --- the machine ------------------------------------------------------------------------------------------------------


def _machine() -> Iterator[Checkup]:
    python = f"{platform.python_implementation()} {platform.python_version()} on {platform.platform()}"
    yield Checkup("python", "fine", f"{python}, {os.cpu_count()} cores")
    yield Checkup(PACKAGE, "fine", metadata.version(PACKAGE))
    for name, least, extra in _requirements():
        if extra is None:
            yield _package(name, least)


def _extras() -> Iterator[Checkup]:
    by_extra: dict[str, list[Checkup]] = {}
    for name, least, extra in _requirements():
        if extra is not None and extra not in ("dev", "docs", "peers", "plots"):
            by_extra.setdefault(extra, []).append(_package(name, least))
    for extra, packages in sorted(by_extra.items()):
        install = f"pip install '{PACKAGE}[{extra}]'"
        missing = [package.check for package in packages if package.state == "wrong"]
        if missing:
            yield Checkup(f"extra {extra}", "note", f"not installed: {', '.join(missing)}", f"{install}, to use it")
        else:
            yield Checkup(f"extra {extra}", "fine", ", ".join(f"{p.check} {p.result}" for p in packages))
        if extra == "spark" and not missing:
            yield _java()


def _java() -> Checkup:
    found = machine.find_java()
    if found is None:
        return Checkup("java", "note", "not found: Spark needs it", "install Java 17 and set JAVA_HOME, to use Spark")
    return Checkup("java", "fine", found)


def _requirements() -> Iterator[tuple[str, str, str | None]]:
    for text in metadata.requires(PACKAGE) or ():
        if (match := _REQUIREMENT.match(text)) is not None:
            least = re.search(r">=\s*([0-9.]+)", match[2])
            yield match[1], least[1] if least else "", match[3]


def _package(name: str, least: str) -> Checkup:
    try:
        version = metadata.version(name)
    except metadata.PackageNotFoundError:
        return Checkup(name, "wrong", "not installed", f"pip install '{name}{f'>={least}' if least else ''}'")
    if _numbers(version) < _numbers(least):
        return Checkup(name, "wrong", f"{version}, older than {least}", f"pip install '{name}>={least}'")
    return Checkup(name, "fine", version)


def _numbers(version: str) -> list[int]:
    return [int(number) for number in re.findall(r"\d+", version.partition("+")[0])[:3]]


# --- the place of a table ---------------------------------------------------------------------------------------------


def _place(
    store: Store, uri: str, environment: Environment, below: Callable[[], TableList] | None
) -> Iterator[Checkup]:
    around = store.nearest_above(PROPERTIES) if isinstance(store, LocalStore) else None
    if around is not None:
        advice = "choose that folder, or another place: a table cannot contain another table"
        yield Checkup("table", "wrong", f"this is in the folder of the table {around}", advice)
        return
    began_ms = environment.now_ms()
    is_free = store.stat(PROPERTIES) is None
    yield Checkup("store", "fine", f"{store!r} answered in {environment.now_ms() - began_ms} ms")
    yield from _table(store, uri, environment, below)
    if isinstance(store, LocalStore):
        yield _disk(store)
        yield from _mount(store)
        if not machine.is_folder(store.root):
            yield Checkup("folder", "note", "the folder does not exist", "crdt-mor create makes it, if permitted")
            return
    try:
        with leaving_nothing(store):
            yield _race(store, uri, environment)
            yield _clock(store, environment)
    except UnsupportedFeatureError as error:
        yield Checkup("store", "wrong", _said(error), "put no table there")
    except (CrdtMorError, OSError) as error:
        advice = "ask for the right to put objects there"
        if is_free:
            yield Checkup("permission to write", "wrong", _said(error), advice)
        else:
            yield Checkup(
                "permission to write", "note", _said(error), f"{advice}, to write; reading needs nothing more"
            )


def _table(
    store: Store, uri: str, environment: Environment, below: Callable[[], TableList] | None
) -> Iterator[Checkup]:
    try:
        table = Table(uri, opening=Opening(store=store, environment=environment))
        version = table.version
    except TableNotFoundError as error:
        if any(store.list(folder) for folder in (".hoodie/timeline", f"{OWN_FOLDER}/timeline")):
            yield Checkup("table", "wrong", _said(error), "run crdt-mor verify to find the damage")
        else:
            yield _no_table(uri, below)
        return
    except (CrdtMorError, OSError) as error:
        yield Checkup("table", "wrong", _said(error), "run crdt-mor verify to find the damage")
        return
    made_by = "" if table._session.config.ours else ", made by Hudi"  # noqa: SLF001  a room below
    said = f"Hudi table version {table.config.hudi_version}{made_by}, timeline at version {version}"
    yield Checkup("table", "fine", f"{said}; run crdt-mor verify to read its data files")
    yield from _readers(table)


def _no_table(uri: str, below: Callable[[], TableList] | None) -> Checkup:
    names: list[str] = []
    with suppress(CrdtMorError, OSError):
        names = [one.uri for one in below().tables] if below is not None else []
    if not names:
        return Checkup("table", "note", "there is no table", "make one with crdt-mor create, or name its folder")
    more = f" and {len(names) - NAMED_MAX} more" if len(names) > NAMED_MAX else ""
    return Checkup(
        "table", "note", f"there is no table, but {plural(len(names), 'table')} below: "
        f"{', '.join(names[:NAMED_MAX])}{more}",
        f"check one of them. crdt-mor list {uri} shows them all; maintain --watch and metrics take this folder",
    )  # fmt: skip


def _readers(table: Table) -> Iterator[Checkup]:
    for row in table.inspect.readers().to_pylist():
        said = (
            f"{row['commits']} commits behind, the oldest for {words_of_age(row['lag'] // timedelta(milliseconds=1))}"
        )
        if row["lost"]:
            advice = "scan, and continue from the scan's checkpoint; or crdt-mor forget-reader, if nobody needs it"
            yield Checkup(f"reader {row['reader']}", "note", "changes that it had not read are gone", advice)
        else:
            yield Checkup(f"reader {row['reader']}", "fine", said)


def _race(store: Store, uri: str, environment: Environment) -> Checkup:
    """Check put-if-absent, and thereby the permission to put and delete."""
    found = race(store, uri, environment.nonce(), KEYS_OF_A_PROBE)
    if found.is_safe:
        return Checkup(
            "put-if-absent",
            "fine",
            f"of {found.puts} concurrent puts of an object a single put won, for each of {found.keys}",
        )
    return Checkup(
        "put-if-absent", "wrong", found.reason, f"put no table there: {page('stores')} names stores that can"
    )


def _clock(store: Store, environment: Environment) -> Checkup:
    before = environment.now_ms()
    store_ms = store.now_ms()
    after = environment.now_ms()
    skew = 0 if before <= store_ms <= after else min(before - store_ms, after - store_ms, key=abs)
    if abs(skew) <= SKEW_MS:
        return Checkup("clock", "fine", f"within {SKEW_MS // 1000} s of the store's")
    how = "ahead of" if skew > 0 else "behind"
    said, advice = f"{abs(skew) / 1000:.0f} s {how} the store's", "set it by NTP"
    if skew > CLOCK_AHEAD_MAX_MS:
        return Checkup("clock", "wrong", f"{said}: writes are refused", advice)
    return Checkup("clock", "note", f"{said}: moments, as in as_of, are off by as much; nothing is lost", advice)


def _disk(store: LocalStore) -> Checkup:
    usage = machine.disk_usage(store.root)
    said = f"{usage.free / 1e9:.1f} of {usage.total / 1e9:.1f} GB are free"
    is_short = usage.free < FREE_MIN * usage.total
    return Checkup("disk", "note" if is_short else "fine", said, "make room, or clean the table" if is_short else "")


def _mount(store: LocalStore) -> Iterator[Checkup]:
    """Check if a network mount caches absent names."""
    mount = machine.mount_of(store.root)
    if mount is None or is_disk(mount):
        return
    said = f"{mount.kind}, shared with other machines"
    if not remembers_absences(mount):
        yield Checkup("mount", "fine", f"{said}; absent names are not cached")
        return
    yield Checkup(
        "mount",
        "note",
        f"{said}; absent names may be cached for a while",
        f"NFS: mount with lookupcache=positive, without nocto; FUSE: keep no absent names; see {page('stores')}",
    )


def _said(error: BaseException) -> str:
    return " ".join(str(error).split())
