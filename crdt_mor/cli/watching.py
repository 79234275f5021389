"""`crdt-mor maintain --watch` and `--every`: maintain many tables until the process is asked to stop.

Each table has its own time. After a failure its pause doubles, up to an hour; the other tables go on.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from datetime import timedelta
from typing import Final

import crdt_mor as mor
from crdt_mor.cli import failures, inputs, render
from crdt_mor.cli.stopping import until_stopped
from crdt_mor.ground.clock import Environment
from crdt_mor.model.policies import plural

PAUSE_MAX: Final = timedelta(hours=1)
"""After many failures, unless the pause is longer."""

_DOUBLED_MAX: Final = 20

_MAINTAINED: Final = ("ready", "moving", "unreadable")
"""States of `list_tables`: other tables take no upkeep."""


class Watch:
    """maintain: returns False if it failed. find: takes the failed tables, returns all tables of now."""

    def __init__(
        self,
        maintain: Callable[[str], bool],
        find: Callable[[Collection[str]], Sequence[str]],
        pause: timedelta,
        environment: Environment,
    ) -> None:
        self._maintain = maintain
        self._find = find
        self._pause_ms = pause // timedelta(milliseconds=1)
        self._longest_ms = max(self._pause_ms, PAUSE_MAX // timedelta(milliseconds=1))
        self._environment = environment
        self._failures: dict[str, int] = {}
        self._next_ms: dict[str, int] = {}

    def run(self) -> None:
        environment = self._environment
        with until_stopped("stopped; the next run, or another process, finishes the interrupted work"):
            while True:
                self._round()
                environment.sleep(self._wait_ms() / 1000)

    def _round(self) -> None:
        found = self._find([uri for uri, times in self._failures.items() if times])
        for known in (self._failures, self._next_ms):
            for gone in known.keys() - set(found):
                del known[gone]
        began_ms = self._environment.now_ms()
        due = [uri for uri in found if self._next_ms.get(uri, 0) <= began_ms]
        for uri in due:
            self._failures[uri] = 0 if self._is_maintained(uri) else self._failures.get(uri, 0) + 1
        ended_ms = self._environment.now_ms()  # for all of them, so that they are due together
        for uri in due:
            pause_ms = self._pause_ms << min(self._failures[uri], _DOUBLED_MAX)
            self._next_ms[uri] = ended_ms + min(self._longest_ms, pause_ms)

    def _is_maintained(self, uri: str) -> bool:
        try:
            return self._maintain(uri)
        except Exception as error:  # noqa: BLE001  the other tables go on
            failures.report(error, "maintain")
            return False

    def _wait_ms(self) -> int:
        """Return the time to the next table, at most a pause: there may be new ones."""
        now_ms = self._environment.now_ms()
        return max(0, min([self._pause_ms, *(due - now_ms for due in self._next_ms.values())]))


class Places:
    """The tables at and below some places; each change is said once.

    While a place cannot be listed, its earlier tables stay. The first call raises errors that stay, such as that of a
    folder that does not exist.
    """

    def __init__(self, places: Sequence[str]) -> None:
        self._known: dict[str, mor.results.TableList | None] = dict.fromkeys(places)

    def __call__(self, failed: Collection[str]) -> list[str]:
        """Return the tables of now. Opens new tables and failed ones."""
        for place, earlier in self._known.items():
            known = [] if earlier is None else _maintained(earlier)
            try:
                found = listed(place, [one for one in known if one.uri not in failed])
            except (mor.CrdtMorError, OSError) as error:
                if earlier is None and not _may_pass(error):
                    raise
                failures.report(error, "maintain")
                continue
            self._tell(place, earlier, found)
            self._known[place] = found
        return list(dict.fromkeys(one.uri for found in self._known.values() if found for one in _maintained(found)))

    def _tell(self, place: str, earlier: mor.results.TableList | None, found: mor.results.TableList) -> None:
        before, now = ({one.uri for one in _maintained(tables)} if tables else set() for tables in (earlier, found))
        if now - before and not render.is_json():  # the lines of JSON name the tables
            render.note(f"{place}: maintaining {', '.join(sorted(now - before))}")
        if not now and (before or earlier is None):
            failures.warn("UserWarning", f"no table to maintain is at or below this place. path={place}")
        if found.left_off and not (earlier and earlier.left_off):
            say_left_off(place, found)


def listed(place: str, known: Iterable[mor.results.ListedTable] = ()) -> mor.results.TableList:
    """Return the tables at and below a place of `list`, `metrics` or `maintain --watch`."""
    return mor.list_tables(place, storage_options=inputs.storage(), known=known)


def say_left_off(place: str, found: mor.results.TableList) -> None:
    if found.left_off:
        folders = plural(found.folders, "folder", ",")
        failures.warn(
            "UserWarning", f"more than {folders}, so tables may be left off: pass places further down. path={place}"
        )


def _maintained(found: mor.results.TableList) -> list[mor.results.ListedTable]:
    return [one for one in found.tables if one.state in _MAINTAINED]


def _may_pass(error: Exception) -> bool:
    return isinstance(error, mor.StorageUnavailableError) and not isinstance(error, mor.errors.StorageRefusedError)
