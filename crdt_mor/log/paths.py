"""Where the objects of a table's own timeline live, below Hudi's folder `.hoodie`.

.hoodie/.heartbeat/<T>                    touched by the writer of the pending instant T while it runs
.hoodie/.crdt_mor/timeline/<version>.json one version of the timeline's value
.hoodie/.crdt_mor/segments/<name>.json    a run of older completions
.hoodie/.crdt_mor/plans/<b>-<nonce>.json  a frozen plan, whose instant's time is b
.hoodie/.crdt_mor/plans/failed-<digest>   empty: a file group that could not be compacted, with these very files
.hoodie/.crdt_mor/staged/<T>-<nonce>      what a task of a distributed write has staged
.hoodie/.crdt_mor/staged/<job>.ticket     the value that a distributed write began from
.hoodie/.crdt_mor/given_up/<job>          empty: the write of this job was given up, and the value has forgotten it
.hoodie/.crdt_mor/posts/turn-<nonce>      empty: a process asks writers for a turn
.hoodie/.crdt_mor/posts/<version>-<name>  a whole small write that its writer has posted for others to commit
.hoodie/.crdt_mor/posts/<…>-<name>.json   an event that its writer has posted for others to publish, at a version
.hoodie/.crdt_mor/erasures/<T>.json       an erasure that is under way, whose delete is requested at T
.hoodie/.crdt_mor/erasures/<T>.stable     when no older write than that delete was pending any more
.hoodie/.crdt_mor/resolved/<name>         a hint: which rows of some files a reader sees
.hoodie/.crdt_mor/loads/<table id>/…      what a first load puts before its table is there, but for base files
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from functools import lru_cache

from crdt_mor.model.instant import InstantTime
from crdt_mor.model.numbers import whole_number
from crdt_mor.model.posts import PostName
from crdt_mor.store.paths import PASSING, TEMP_FOLDER
from crdt_mor.store.protocol import Stat

PROPERTIES = ".hoodie/hoodie.properties"
BACKUP = ".hoodie/hoodie.properties.backup"
"""What Hudi's readers and ours take where there are no properties, as a process died that changed them."""

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
LOADS = PASSING
HEARTBEATS = ".hoodie/.heartbeat"

_VERSION = re.compile(rf"{re.escape(VERSIONS)}/[0-9]{{20}}\.json")
_EVENT = ".json"

_NONCE, _TIME, _VERSION_20 = "[0-9a-f]{32}", "[0-9]{17}", "[0-9]{20}"
_JOB = f"{_NONCE}(-{_TIME})?"
_OWN_NAMES = {
    folder: re.compile(name)
    for folder, name in (
        (HEARTBEATS, _TIME),
        (SEGMENTS, rf"{_VERSION_20}-{_JOB}-[0-9]+-(live|past|history|wide|file-ids)(-[0-9]+)?\.json"),
        (PLANS, rf"{_TIME}-{_NONCE}\.json|failed-[0-9a-f]{{32}}"),
        (STAGED, rf"{_TIME}-({_NONCE}|told)|{_JOB}\.ticket"),
        (GIVEN_UP, _JOB),
        (POSTS, rf"turn(-{_NONCE})?|[0-9]{{1,18}}-[0-9a-f]{{12}}(\.json)?"),
        (ERASURES, rf"{_TIME}\.(json|stable)"),
        (COPIED, rf"{_VERSION_20}\.json"),
        (RESOLVED, "[0-9a-f]{64}"),
        (LOADS, _NONCE),
        (TEMP_FOLDER, f"clock-{_NONCE}"),
    )
}
"""The names that releases put into the folders from which sweeps delete."""

TICKET = ".ticket"
"""What the name of a ticket ends with; it tells the tickets in `STAGED` from what tasks have staged there."""


def version_path(version: int) -> str:
    """The object of a version of the timeline. Names sort as versions do."""
    return f"{VERSIONS}/{version:020d}.json"


def is_version(path: str) -> bool:
    """Whether an object is a version; people, programs and file systems may leave others in the folder."""
    return _VERSION.fullmatch(path) is not None


def is_own(path: str) -> bool:
    """Whether a release could have put this object, by its name. A sweep deletes no other one from these folders."""
    folder, _, name = path.rpartition("/")
    names = _OWN_NAMES.get(folder)
    return names is not None and names.fullmatch(name) is not None


def only_own(listed: Iterable[Stat]) -> list[Stat]:
    """The objects of a listing that a release could have put."""
    return [stat for stat in listed if is_own(stat.path)]


def outside_other_tables(listed: Sequence[Stat]) -> list[Stat]:
    """The files of a walk without the files of other tables, whose folders lie in this table's folder."""
    folders = tuple({stat.path.partition("/.hoodie/")[0] + "/" for stat in listed if "/.hoodie/" in stat.path})
    return [stat for stat in listed if not stat.path.startswith(folders)]


def segment_path(name: str) -> str:
    """The object of a segment."""
    return f"{SEGMENTS}/{name}.json"


def plan_path(barrier: InstantTime, nonce: str) -> str:
    """The object of a frozen plan: one for each attempt to schedule it, since each derives it anew."""
    return f"{PLANS}/{barrier}-{nonce}.json"


def failure_path(digest: str) -> str:
    """The object that notes that a file group could not be compacted. Names sort behind those of plans."""
    return f"{FAILURES}{digest}"


def heartbeat_path(requested: InstantTime) -> str:
    """The object that the writer of a pending instant touches while it runs."""
    return f"{HEARTBEATS}/{requested}"


def ticket_path(job: str) -> str:
    """The object in which the processes of a distributed write find the value that their write began from."""
    return f"{STAGED}/{job}{TICKET}"


def note_path(job: str) -> str:
    """The object that notes that the write of a job was given up."""
    return f"{GIVEN_UP}/{job}"


def post_path(post: PostName) -> str:
    """The object in which a writer has posted a whole write."""
    return f"{POSTS}/{post.version}-{post.name}"


def event_path(post: PostName) -> str:
    """The object in which a writer has posted an event, the begin or the end of a write."""
    return post_path(post) + _EVENT


def is_event(path: str) -> bool:
    """Whether an object among the posts is that of an event, and not of a whole write."""
    return path.endswith(_EVENT)


@lru_cache(maxsize=1024)  # a writer asks for the same ones with each look
def post_in(path: str) -> PostName | None:
    """The post whose object this is; None for an object that is none's."""
    version, dash, name = path.rpartition("/")[2].removesuffix(_EVENT).partition("-")
    number = whole_number(version)
    return PostName(number, name) if dash and name and number is not None else None


def resolved_path(name: str) -> str:
    """The object in which it is noted which rows of some files a reader sees. name: of the files."""
    return f"{RESOLVED}/{name}"


def copied_path(version: int) -> str:
    """The object that notes, in a copy of a table, a version of that table which the copy is made to show."""
    return f"{COPIED}/{version:020d}.json"


def erasure_path(requested: InstantTime) -> str:
    """The object that notes an erasure which is under way."""
    return f"{ERASURES}/{requested}.json"


def stable_path(requested: InstantTime) -> str:
    """The object that notes from when on the delete of an erasure is stable."""
    return f"{ERASURES}/{requested}.stable"
