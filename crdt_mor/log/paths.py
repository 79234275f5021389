"""Paths of the objects in a table's own timeline, below Hudi's folder `.hoodie`.

.hoodie/.heartbeat/<T>                    touched by the writer of the pending instant T
.hoodie/.crdt_mor/timeline/<version>.json a version of the timeline's value
.hoodie/.crdt_mor/segments/<name>.json    a run of older completions
.hoodie/.crdt_mor/plans/<b>-<nonce>.json  a frozen plan with instant b
.hoodie/.crdt_mor/plans/failed-<digest>   empty: compaction of a file group with these files failed
.hoodie/.crdt_mor/staged/<T>-<nonce>      staged by a task of a distributed write
.hoodie/.crdt_mor/staged/<job>.ticket     the value that a distributed write began from
.hoodie/.crdt_mor/given_up/<job>          empty: this job's write was given up and forgotten by the value
.hoodie/.crdt_mor/posts/turn-<nonce>      empty: a process asks writers for a turn
.hoodie/.crdt_mor/posts/<version>-<name>  a small write, posted for others to commit
.hoodie/.crdt_mor/posts/<…>-<name>.json   an event, posted at a version for others to publish
.hoodie/.crdt_mor/erasures/<T>.json       a running erasure with a delete requested at T
.hoodie/.crdt_mor/erasures/<T>.stable     when no older write than that delete was pending any more
.hoodie/.crdt_mor/resolved/<name>         a hint: the visible rows of some files
.hoodie/.crdt_mor/readers/<checkpoint>     empty: a named reader finished the changes up to here
.hoodie/.crdt_mor/verified/<n>-<nonce>    empty: a verify of the whole table ended with n findings
.hoodie/.crdt_mor/loads/<table id>/…      files of a first load before its table exists, except base files
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from functools import lru_cache

from crdt_mor.model.checkpoints import CHECKPOINT_NAME, Checkpoint
from crdt_mor.model.instant import InstantTime
from crdt_mor.model.numbers import whole_number
from crdt_mor.model.posts import PostName
from crdt_mor.store.paths import PASSING, TEMP_FOLDER
from crdt_mor.store.protocol import Stat

PROPERTIES = ".hoodie/hoodie.properties"
BACKUP = ".hoodie/hoodie.properties.backup"
"""Read if the properties are missing, because a process died while changing them."""

METADATA_TABLE = ".hoodie/metadata"
OWN_FOLDER = ".hoodie/.crdt_mor"

VERSIONS = f"{OWN_FOLDER}/timeline"
SEGMENTS = f"{OWN_FOLDER}/segments"
PLANS = f"{OWN_FOLDER}/plans"
FAILURES = f"{PLANS}/failed-"
STAGED = f"{OWN_FOLDER}/staged"
GIVEN_UP = f"{OWN_FOLDER}/given_up"
POSTS = f"{OWN_FOLDER}/posts"
ERASURES = f"{OWN_FOLDER}/erasures"
COPIED = f"{OWN_FOLDER}/copied"
RESOLVED = f"{OWN_FOLDER}/resolved"
READERS = f"{OWN_FOLDER}/readers"
VERIFIED = f"{OWN_FOLDER}/verified"
LOADS = PASSING
HEARTBEATS = ".hoodie/.heartbeat"

_VERSION = re.compile(rf"{re.escape(VERSIONS)}/[0-9]{{20}}\.json")
_EVENT = ".json"

_NONCE, _TIME, _VERSION_20 = "[0-9a-f]{32}", "[0-9]{17}", "[0-9]{20}"
_JOB = f"{_NONCE}(-{_TIME})?"
_PART = "((live|past|history|wide|file-ids|tokens)(-[0-9]+)?|schema-[0-9a-f]{16})"
_OWN_NAMES = {
    folder: re.compile(name)
    for folder, name in (
        (HEARTBEATS, _TIME),
        (SEGMENTS, rf"{_VERSION_20}-{_JOB}-[0-9]+-{_PART}\.json"),
        (PLANS, rf"{_TIME}-{_NONCE}\.json|failed-[0-9a-f]{{32}}"),
        (STAGED, rf"{_TIME}-({_NONCE}|told)|{_JOB}\.ticket"),
        (GIVEN_UP, _JOB),
        (POSTS, rf"turn(-{_NONCE})?|[0-9]{{1,18}}-[0-9a-f]{{12}}(\.json)?"),
        (ERASURES, rf"{_TIME}\.(json|stable)"),
        (COPIED, rf"{_VERSION_20}\.json"),
        (RESOLVED, "[0-9a-f]{64}"),
        (READERS, CHECKPOINT_NAME),
        (VERIFIED, rf"[0-9]{{1,9}}-{_NONCE}"),
        (LOADS, _NONCE),
        (TEMP_FOLDER, f"clock-{_NONCE}"),
    )
}
"""Names that releases put into folders with sweeps."""

TICKET = ".ticket"
"""Suffix of tickets in `STAGED`."""


def version_path(version: int) -> str:
    return f"{VERSIONS}/{version:020d}.json"


def is_version(path: str) -> bool:
    """Return True for a version. People and programs may leave other files in the folder."""
    return _VERSION.fullmatch(path) is not None


def is_own(path: str) -> bool:
    """Return True if a release may have put this object. Sweeps delete no other objects."""
    folder, _, name = path.rpartition("/")
    names = _OWN_NAMES.get(folder)
    return names is not None and names.fullmatch(name) is not None


def only_own(listed: Iterable[Stat]) -> list[Stat]:
    return [stat for stat in listed if is_own(stat.path)]


def outside_other_tables(listed: Sequence[Stat]) -> list[Stat]:
    """Return the files of a walk without nested tables."""
    folders = tuple({stat.path.partition("/.hoodie/")[0] + "/" for stat in listed if "/.hoodie/" in stat.path})
    return [stat for stat in listed if not stat.path.startswith(folders)]


def segment_path(name: str) -> str:
    return f"{SEGMENTS}/{name}.json"


def plan_path(barrier: InstantTime, nonce: str) -> str:
    """Return the path of a frozen plan, one per attempt to schedule."""
    return f"{PLANS}/{barrier}-{nonce}.json"


def failure_path(digest: str) -> str:
    return f"{FAILURES}{digest}"


def heartbeat_path(requested: InstantTime) -> str:
    return f"{HEARTBEATS}/{requested}"


def ticket_path(job: str) -> str:
    return f"{STAGED}/{job}{TICKET}"


def note_path(job: str) -> str:
    return f"{GIVEN_UP}/{job}"


def post_path(post: PostName) -> str:
    return f"{POSTS}/{post.version}-{post.name}"


def event_path(post: PostName) -> str:
    return post_path(post) + _EVENT


def is_event(path: str) -> bool:
    return path.endswith(_EVENT)


@lru_cache(maxsize=1024)  # a writer repeats the same paths
def post_in(path: str) -> PostName | None:
    version, dash, name = path.rpartition("/")[2].removesuffix(_EVENT).partition("-")
    number = whole_number(version)
    return PostName(number, name) if dash and name and number is not None else None


def resolved_path(name: str) -> str:
    return f"{RESOLVED}/{name}"


def reader_path(checkpoint: Checkpoint) -> str:
    return f"{READERS}/{checkpoint}"


def copied_path(version: int) -> str:
    return f"{COPIED}/{version:020d}.json"


def erasure_path(requested: InstantTime) -> str:
    return f"{ERASURES}/{requested}.json"


def stable_path(requested: InstantTime) -> str:
    return f"{ERASURES}/{requested}.stable"
