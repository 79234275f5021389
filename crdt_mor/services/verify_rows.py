"""Check the rows of a file or file group against the table.

states     the visible column of a payload matches its state, in every file
keys       a write of the same row would find it: record key, partition path, bucket
rules      each visible row fulfils the proven rules
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Final

import polars as pl
import pyarrow as pa

from crdt_mor.columns.schema import TableSchema
from crdt_mor.errors import CrdtMorError, FormatError, InvalidInputError, PayloadError, UnsupportedFeatureError
from crdt_mor.ground.parquet import is_of_system, not_read
from crdt_mor.laws.merging import Merging
from crdt_mor.merge.blocks import RECORD_KEY
from crdt_mor.merge.kernel import to_arrow
from crdt_mor.merge.polars_types import polars_frame
from crdt_mor.merge.rule import Member
from crdt_mor.model.config import TableConfig
from crdt_mor.model.rules import Rules
from crdt_mor.model.slices import FileSlice
from crdt_mor.model.timeline_parts import FileGroup
from crdt_mor.read.damage import POLARS_ERRORS
from crdt_mor.services.verify_findings import Finding, finding
from crdt_mor.write.adopted_keys import key_columns, misplaced_rows
from crdt_mor.write.rules import broken_by

_DAMAGED: Final = (pa.ArrowException, OSError, ValueError, LookupError, *POLARS_ERRORS)
"""Errors of pyarrow and polars for unreadable bytes and for renamed columns."""


@dataclass(slots=True)
class Faults:
    """The faults of a file, or of a file group's rows: per check the first case and the number of rows.

    `is_fatal`: the file is unreadable, so no other check is possible.
    """

    path: str
    group: FileGroup
    is_fatal: bool = False
    _texts: dict[str, str | CrdtMorError] = field(default_factory=dict)
    _rows: dict[str, int | None] = field(default_factory=dict)

    def note(self, check: str, text: str, rows: int | None = None) -> None:
        if self.is_fatal:
            return
        self._texts.setdefault(check, text)
        before = self._rows.get(check, 0 if rows is not None else None)
        self._rows[check] = None if rows is None or before is None else before + rows

    def fail(self, check: str, fault: str | CrdtMorError) -> None:
        """Replace all other faults by an unreadable file."""
        if not self.is_fatal:
            self._texts, self._rows = {check: fault}, {check: None}
        self.is_fatal = True

    def fail_with(self, error: CrdtMorError) -> None:
        """Note the error that ended a read, by class: payload, unsupported feature or damage."""
        check = "payload" if isinstance(error, PayloadError) else "read"
        self.fail("not supported" if isinstance(error, UnsupportedFeatureError) else check, error)

    @contextmanager
    def reading(self, format: str) -> Iterator[None]:
        """Turn errors about unreadable bytes into a fault; others are raised."""
        try:
            yield
        except FileNotFoundError:
            raise
        except FormatError as error:
            self.fail("read", str(error))
        except _DAMAGED as error:
            if is_of_system(error):
                raise not_read(error, self.path) from error
            self.fail("read", f"damaged {format}: {' '.join(str(error).split())}. file={self.path}")

    def findings(self) -> Iterator[Finding]:
        for check, said in self._texts.items():
            yield finding(check, self.path, said, self.group, self._rows[check])


def ask_states(merging: Merging, rows: pl.DataFrame, faults: Faults) -> None:
    for member in merging.rule.members:
        if member.hidden is None or not {member.hidden, *member.columns} <= set(rows.columns):
            continue
        types = merging.columns.stored
        held = rows.select(pl.col(name).cast(types[name]) for name in (member.hidden, *member.columns))
        held = held.with_columns(rows[RECORD_KEY]).filter(pl.col(member.hidden).is_not_null())
        try:
            _ask_member(member, held, faults)
        except PayloadError as error:
            faults.note("payload", str(error))


def _ask_member(member: Member, held: pl.DataFrame, faults: Faults) -> None:
    assert member.hidden is not None
    for shown in member.unpack(held[member.hidden], member.columns):
        stored = held[shown.name]
        wrong = stored.ne_missing(shown.cast(stored.dtype)).arg_true()
        if len(wrong):
            key, was, made = held[RECORD_KEY][wrong[0]], stored[wrong[0]], shown[wrong[0]]
            faults.note(
                "state",
                "a column differs from its payload's state. "
                f"column={shown.name} payload={member.payload.name} key={key!r} shown={was!r} state={made!r}",
                len(wrong),
            )


def ask_keys(config: TableConfig, slice_: FileSlice, frame: pl.DataFrame, faults: Faults) -> None:
    """Check that a write would put each row where it is, if the table's columns can tell."""
    if not set(key_columns(config)) <= set(frame.columns):
        return
    try:
        for row in misplaced_rows(config, slice_, frame):
            facts = f"key={row.key!r} found={row.stored!r} made={row.computed!r}"
            faults.note(row.kind, f"a write would give this row a different {row.kind}: {facts}", 1)
    except InvalidInputError as error:
        faults.note("record key", str(error), frame.height)


def ask_rules(rules: Rules, schema: TableSchema, frame: pl.DataFrame, faults: Faults) -> None:
    for rule in rules:
        if not rule.is_proven or rule.kind == "default" or not set(rule.columns) <= set(frame.columns):
            continue
        try:
            declared = polars_frame(schema.restore(to_arrow(frame.select(rule.columns))))
            broken = declared.select(broken_by(rule, schema).fill_null(False).alias("broken"))["broken"].arg_true()
        except CrdtMorError as error:
            faults.note("rule", f"a rule cannot be evaluated: {error}", frame.height)
            continue
        if len(broken):
            key = frame[RECORD_KEY][broken[0]]
            faults.note("rule", f"a proven rule is broken. rule={str(rule)!r} key={key!r}", len(broken))
