"""The grammar of Hudi's file names: each name is a value that parses and prints itself.

    base file      <fileId>_<writeToken>_<T>.parquet
    log file       .<fileId>_<T>.log.<version>_<writeToken>
    timeline       <T>.<action>.requested | <T>.<action>.inflight | <T>_<C>.<action>
    of layout 1    <T>.<action>.requested | <T>.<action>.inflight | <T>.<action>; of a commit also <T>.inflight

`T` is the requested time of the instant that wrote the file, `C` its completion time. Layout 1, of tables before
version 8, has no completion times, and the `T` of a log file there is the one of its slice.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

from crdt_mor.model.instant import InstantTime

WRITE_TOKEN = "0-0-0"
"""The write token of files that a single process writes; Spark's are partition-stage-attempt."""

_DRIVERS = 1_000_000_000
_DRIVER_TOKEN = re.compile(r"0-1(?P<driver>[0-9]{9})-0\Z")

DELTA_COMMIT = "deltacommit"
COMPACTION = "compaction"
COMMIT = "commit"
CLEAN = "clean"
ROLLBACK = "rollback"

ALTER_SCHEMA = "ALTER_SCHEMA"
"""Hudi's word for the operation of a commit that changes columns and no row."""
SAVEPOINT = "savepoint"
"""Hudi's actions, as they stand in the names of its timeline: a compaction is a `commit` once it is completed."""

REPLACE_COMMIT = "replacecommit"
DATA_ACTIONS = frozenset({DELTA_COMMIT, COMMIT, REPLACE_COMMIT})
"""The actions whose completed instants say which data files there are; the last one only Hudi's writers make."""

LOG_COMPACT = "LOG_COMPACT"
"""The operation of a compaction with a log compaction in it: some of its base files may be copies of older ones."""

OWN_KEY = "crdt_mor"
"""Stands in the metadata of every file of Hudi's timeline that we project; instants with it are never adopted."""

COMMIT_INFO_KEY = "crdt_mor.commit_info"
"""Stands beside it in the metadata of a commit of which its user says something: that, as JSON."""

CLAIM_KEY = "crdt_mor.claim"
"""Stands beside it in the claim of a time: a text that nobody else has used."""

_FIXED_SUFFIX = "-0000-0000-0000-000000000000-0"
_BASE = re.compile(r"(?P<file_id>[A-Za-z0-9-]+)_(?P<token>[A-Za-z0-9-]+)_(?P<instant>[0-9]+)\.parquet\Z")
_LOG = re.compile(
    r"\.(?P<file_id>[A-Za-z0-9-]+)_(?P<instant>[0-9]+)\.log\.(?P<version>[0-9]{1,18})(_(?P<token>[A-Za-z0-9-]+))?"
    r"(?P<cdc>\.cdc)?\Z"
)
_LAYOUT_ONE = re.compile(r"(?P<requested>[0-9]{14,17})\.(?P<action>[a-z]+)(\.(?P<state>requested|inflight))?\Z")
_TIMELINE = re.compile(
    r"(?P<requested>[0-9]{14,17})(_(?P<completed>[0-9]{14,17}))?\.(?P<action>[a-z]+)"
    r"(\.(?P<state>requested|inflight))?\Z"
)


def bucket_file_id(bucket: int) -> str:
    """The fixed file id of a bucket, as in Hudi's non-blocking concurrency control."""
    return f"{bucket:08d}{_FIXED_SUFFIX}"


def replacing_file_id(bucket: int, instant: InstantTime) -> str:
    """The file id of a bucket whose file group was replaced by an instant: no other instant has its time."""
    digits = instant.zfill(24)
    return f"{bucket:08d}-{digits[:4]}-{digits[4:8]}-{digits[8:12]}-{digits[12:]}-0"


def bucket_of_file_id(file_id: str) -> int | None:
    """The bucket that is said by a file id's first eight digits; None for one that does not begin so.

    An id that the bucket index did not make may begin so by chance: with a number that is no bucket's of the table.
    """
    digits = file_id[:8]
    return int(digits) if file_id[8:9] == "-" and digits.isascii() and digits.isdigit() else None


def driver_token(driver: int) -> str:
    """The write token of the files that driver number `driver` of a distributed write places.

    Each driver that takes a write over has a number of its own, so no two of them ever mean one name. The middle part
    is a 32-bit number, as Hudi's readers want it, and one that no Spark stage has.
    """
    return f"0-{_DRIVERS + driver}-0"


def driver_of_token(token: str) -> int | None:
    """The driver of a distributed write that gave a file this token; None for tokens of others."""
    match = _DRIVER_TOKEN.match(token)
    return int(match["driver"]) if match else None


def is_own_token(token: str) -> bool:
    """Whether a file with this token was written by us."""
    return token == WRITE_TOKEN or driver_of_token(token) is not None


@dataclass(frozen=True, slots=True)
class BaseFileName:
    """Name of a base file."""

    file_id: str
    token: str
    instant: InstantTime

    def __str__(self) -> str:
        return f"{self.file_id}_{self.token}_{self.instant}.parquet"

    @classmethod
    def parse(cls, name: str) -> BaseFileName | None:
        """None for a name that is not a base file's."""
        match = _BASE.match(name)
        return match and cls(match["file_id"], match["token"], InstantTime(match["instant"]))


@dataclass(frozen=True, slots=True)
class LogFileName:
    """Name of a log file. Hudi orders the logs of a slice by (instant, version, token), all but the version as text."""

    file_id: str
    instant: InstantTime
    version: int = 1
    token: str = WRITE_TOKEN

    def __str__(self) -> str:
        return f".{self.file_id}_{self.instant}.log.{self.version}_{self.token}"

    @classmethod
    def parse(cls, name: str) -> LogFileName | None:
        """None for a name that is not a log file's, supplemental change logs (`.cdc`) among them."""
        match = _LOG.match(name)
        if match is None or match["cdc"]:
            return None
        return cls(match["file_id"], InstantTime(match["instant"]), int(match["version"]), match["token"] or "")


def data_file_name(path: str) -> BaseFileName | LogFileName | None:
    """The parsed name of a data file; None for other files."""
    name = path.rpartition("/")[2]
    return LogFileName.parse(name) if name.startswith(".") else BaseFileName.parse(name)


TimelineState = Literal["requested", "inflight", "completed"]


@dataclass(frozen=True, slots=True)
class TimelineFileName:
    """Name of a file in Hudi's timeline directory; its action is the one in the name: a compaction ends as `commit`."""

    requested: InstantTime
    action: str
    state: TimelineState
    completed: InstantTime | None = None

    def __str__(self) -> str:
        if self.state == "completed":
            return f"{self.requested}_{self.completed}.{self.action}"
        return f"{self.requested}.{self.action}.{self.state}"

    @classmethod
    def parse(cls, name: str) -> TimelineFileName | None:
        """None for a name that is not a timeline file's."""
        match = _TIMELINE.match(name)
        if match is None or (match["completed"] is None) != (match["state"] is not None):
            return None
        completed = InstantTime(match["completed"]) if match["completed"] else None
        state: TimelineState = "completed" if completed else "inflight" if match["state"] == "inflight" else "requested"
        return cls(InstantTime(match["requested"]), match["action"], state, completed)

    @classmethod
    def parse_layout_one(cls, name: str) -> TimelineFileName | None:
        """The name of a file in a timeline of layout 1, which holds no completion time; None for other files."""
        match = _LAYOUT_ONE.match(name)
        if match is None:
            return None
        instant, action, state = InstantTime(match["requested"]), match["action"], match["state"]
        if action == "inflight":
            return cls(instant, COMMIT, "inflight")
        return cls(
            instant, action, "completed" if state is None else "inflight" if state == "inflight" else "requested"
        )


def join_path(*parts: str) -> str:
    """Parts of a path inside a table, joined; empty ones (the partition of an unpartitioned table) left out."""
    return "/".join(part for part in parts if part)


@lru_cache(maxsize=1 << 13)  # a look at Hudi's timeline meets those of the last one
def timeline_file_name(path: str) -> TimelineFileName | None:
    """The parsed name of a file of Hudi's timeline; None for other files."""
    return TimelineFileName.parse(path.rpartition("/")[2])
