"""The grammar of Hudi's file names. Each name parses and formats itself.

    base file      <fileId>_<writeToken>_<T>.parquet
    log file       .<fileId>_<T>.log.<version>_<writeToken>
    timeline       <T>.<action>.requested | <T>.<action>.inflight | <T>_<C>.<action>
    layout 1       <T>.<action>.requested | <T>.<action>.inflight | <T>.<action>; a commit also <T>.inflight

`T` is the requested time, `C` the completion time. Layout 1, before table version 8, lacks completion times, and `T` of
a log file is its slice's.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

from crdt_mor.model.instant import InstantTime

WRITE_TOKEN = "0-0-0"
"""For files of a single process. Spark's tokens are partition-stage-attempt."""

_DRIVERS = 1_000_000_000
_DRIVER_TOKEN = re.compile(r"0-1(?P<driver>[0-9]{9})-0\Z")

DELTA_COMMIT = "deltacommit"
COMPACTION = "compaction"
COMMIT = "commit"
CLEAN = "clean"
ROLLBACK = "rollback"

ALTER_SCHEMA = "ALTER_SCHEMA"
"""Hudi's operation of a commit that changes only columns."""
SAVEPOINT = "savepoint"

REPLACE_COMMIT = "replacecommit"
DATA_ACTIONS = frozenset({DELTA_COMMIT, COMMIT, REPLACE_COMMIT})
"""Actions with data files. Only Hudi's writers make the last."""

LOG_COMPACT = "LOG_COMPACT"
"""A compaction that includes a log compaction: some base files may be copies of older ones."""

OWN_KEY = "crdt_mor"
"""In the metadata of every timeline file that we project. Instants with this key are never adopted."""

COMMIT_INFO_KEY = "crdt_mor.commit_info"
"""The user's `commit_info` as JSON."""

CLAIM_KEY = "crdt_mor.claim"
"""A unique text in the claim of a time."""

_FIXED_SUFFIX = "-0000-0000-0000-000000000000-0"
BASE_FILE = r"(?P<file_id>[A-Za-z0-9-]+)_(?P<token>[A-Za-z0-9-]+)_(?P<instant>[0-9]+)\.parquet"
_BASE = re.compile(rf"{BASE_FILE}\Z")
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
    """Return the fixed file id of a bucket, as in Hudi's non-blocking concurrency control."""
    return f"{bucket:08d}{_FIXED_SUFFIX}"


def replacing_file_id(bucket: int, instant: InstantTime) -> str:
    """Return a bucket's file id after an instant, with its unique time, replaced the file group."""
    digits = instant.zfill(24)
    return f"{bucket:08d}-{digits[:4]}-{digits[4:8]}-{digits[8:12]}-{digits[12:]}-0"


def bucket_of_file_id(file_id: str) -> int | None:
    """Return the bucket in the first eight digits of a file id, or None.

    Other ids may begin with digits by chance.
    """
    digits = file_id[:8]
    return int(digits) if file_id[8:9] == "-" and digits.isascii() and digits.isdigit() else None


def driver_token(driver: int) -> str:
    """Return the write token of a distributed write's driver.

    Every driver gets a new number, so drivers never share a file name. The middle part
    is a 32-bit number, as Hudi's readers require, and beyond Spark's stages.
    """
    return f"0-{_DRIVERS + driver}-0"


def driver_of_token(token: str) -> int | None:
    match = _DRIVER_TOKEN.match(token)
    return int(match["driver"]) if match else None


def is_own_token(token: str) -> bool:
    return token == WRITE_TOKEN or driver_of_token(token) is not None


@dataclass(frozen=True, slots=True)
class BaseFileName:
    file_id: str
    token: str
    instant: InstantTime

    def __str__(self) -> str:
        return f"{self.file_id}_{self.token}_{self.instant}.parquet"

    @classmethod
    def parse(cls, name: str) -> BaseFileName | None:
        match = _BASE.match(name)
        return match and cls(match["file_id"], match["token"], InstantTime(match["instant"]))


@dataclass(frozen=True, slots=True)
class LogFileName:
    """A log file's name. Hudi sorts a slice's logs by (instant, version, token); only the version is a number."""

    file_id: str
    instant: InstantTime
    version: int = 1
    token: str = WRITE_TOKEN

    def __str__(self) -> str:
        return f".{self.file_id}_{self.instant}.log.{self.version}_{self.token}"

    @classmethod
    def parse(cls, name: str) -> LogFileName | None:
        """Parse a log file's name. Supplemental change logs (`.cdc`) are None."""
        match = _LOG.match(name)
        if match is None or match["cdc"]:
            return None
        return cls(match["file_id"], InstantTime(match["instant"]), int(match["version"]), match["token"] or "")


def data_file_name(path: str) -> BaseFileName | LogFileName | None:
    name = path.rpartition("/")[2]
    return LogFileName.parse(name) if name.startswith(".") else BaseFileName.parse(name)


TimelineState = Literal["requested", "inflight", "completed"]


@dataclass(frozen=True, slots=True)
class TimelineFileName:
    """A file of Hudi's timeline. A completed compaction is a `commit`."""

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
        match = _TIMELINE.match(name)
        if match is None or (match["completed"] is None) != (match["state"] is not None):
            return None
        completed = InstantTime(match["completed"]) if match["completed"] else None
        state: TimelineState = "completed" if completed else "inflight" if match["state"] == "inflight" else "requested"
        return cls(InstantTime(match["requested"]), match["action"], state, completed)

    @classmethod
    def parse_layout_one(cls, name: str) -> TimelineFileName | None:
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
    return "/".join(part for part in parts if part)


@lru_cache(maxsize=1 << 15)  # more than the names in a timeline: a longer listing would find none again
def timeline_file_name(path: str) -> TimelineFileName | None:
    return TimelineFileName.parse(path.rpartition("/")[2])
