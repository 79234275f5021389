"""Explain a row as a table of its contributions. See `Table.why`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

import polars as pl
import pyarrow as pa

from crdt_mor.api.history import AUTHOR, MOMENT
from crdt_mor.api.reading import AsOf, value_at
from crdt_mor.api.statements import key_rows
from crdt_mor.columns.schema import TableSchema
from crdt_mor.events.session import Session
from crdt_mor.laws.merging import HIDDEN, Merging, merging_of
from crdt_mor.merge.blocks import COMMIT_TIME
from crdt_mor.merge.expiry import expired, expires_at
from crdt_mor.merge.kernel import to_arrow
from crdt_mor.merge.rule import MergeRule
from crdt_mor.model.authors import columns_of
from crdt_mor.model.instant import to_datetime
from crdt_mor.planners.clean import is_commit
from crdt_mor.read.expressions import conjunction
from crdt_mor.read.snapshot import Snapshot
from crdt_mor.read.why import Line, life_of
from crdt_mor.write.named import known_columns, shown_table

_TEXTS: Final = pa.list_(pa.string())


@dataclass(frozen=True)
class _HistoryTable:
    """Formats the lines of a row's history. `columns` are stored names."""

    snapshot: Snapshot
    lines: Sequence[Line]
    columns: Sequence[str]

    def table(self) -> pa.Table:
        local = self.snapshot.session.config.local_times
        facts = [
            self._facts(line, local=local) | {"overtaken_by": self._overtaking(i)} for i, line in enumerate(self.lines)
        ]
        if facts and (expiry := self._expiry()) is not None:
            facts[-1]["because"] = f"{facts[-1]['because']}; the row expired at {expiry}"
        columns = {name: pa.array([row.get(name) for row in facts], kind) for name, kind in _FACTS.items()}
        columns["written"] = self._rows([line.written for line in self.lines])
        columns["result"] = self._rows([line.after for line in self.lines])
        states = self._states()
        if states is not None:
            columns["states"] = states
        order = [*_BEFORE_ROWS, "columns", "written", "effect", "changed", "because", "result", "states", *_AFTER_ROWS]
        return pa.table({name: columns[name] for name in order if name in columns})

    def _expiry(self) -> datetime | None:
        expiry, at, row = self.snapshot.session.config.merge.expiry, self.snapshot.expiry_time, self.lines[-1].after
        if expiry is None or at is None or not row.filter(expired(expiry, at)).height:
            return None
        found: datetime = row.select(expires_at(expiry)).item()
        return found

    def _overtaking(self, number: int) -> list[str]:
        """Return later contributions that were visible first: readers never saw this line's result."""
        line = self.lines[number]
        if line.commit is None:
            return []
        later = (one for one in self.lines[number + 1 :] if one.partition == line.partition and one.commit is not None)
        return [one.requested for one in later if one.commit and one.commit.completed < line.commit.completed]

    @property
    def merging(self) -> Merging:
        return merging_of(self.snapshot.session.config, self.snapshot.value.schema)

    def _facts(self, line: Line, *, local: bool) -> dict[str, object]:
        commit, shown, given = line.commit, self.snapshot.names.shown, {*line.given}
        changed = [name for name in self.columns if _differs(line, name)]
        completed = None if commit is None else commit.completed
        writers = [] if commit is None else [one.author for one in commit.writers]
        return {
            "partition": line.partition,
            "change": line.change,
            "requested": to_datetime(line.requested, local=local),
            "completed": None if completed is None else to_datetime(completed, local=local),
            "version": None if commit is None else commit.version,
            "operation": None if commit is None else commit.operation,
            # The files of a group do not record which of its writers set the value.
            **columns_of(writers[0] if len(writers) == 1 else None),
            "writers": [author.application for author in writers] if len(writers) > 1 else None,
            "columns": [shown(name) for name in self.columns if name in given] if line.written.height else None,
            "effect": _effect(line, changed),
            "changed": [shown(name) for name in changed],
            "because": because(line, self.merging.rule, self.columns, shown_of=self.snapshot.names.shown),
            "folded_by": None if line.folded is None else line.folded.requested,
            "carried_by": [commit.requested for commit in line.carried],
            "requested_at": line.requested,
            "completed_at": completed,
        }

    def _rows(self, frames: Sequence[pl.DataFrame]) -> pa.StructArray:
        schema, names = self.snapshot.schema, [*self.columns]
        restored = schema.restore(to_arrow(self._stacked(frames, names)))
        shown = [
            field.with_name(self.snapshot.names.shown(field.name)).with_nullable(True) for field in restored.schema
        ]
        return _structs(restored, shown, frames)

    def _states(self) -> pa.StructArray | None:
        """Return the payload states that differ from their visible values; None without any."""
        hidden = [m.hidden for m in self.merging.rule.members if m.hidden and {*m.columns} & {*self.columns}]
        if not hidden:
            return None
        frames = [line.after for line in self.lines]
        rows, shown = to_arrow(self._stacked(frames, hidden)), self.snapshot.names.shown
        fields = [field.with_name(shown(field.name.removeprefix(HIDDEN))) for field in rows.schema]
        return _structs(rows, fields, frames)

    def _stacked(self, frames: Sequence[pl.DataFrame], names: Sequence[str]) -> pl.DataFrame:
        kinds = {name: self.merging.columns.stored[name] for name in names}
        missing = pl.DataFrame({name: pl.Series([None], dtype=kind) for name, kind in kinds.items()}, schema=kinds)
        rows = [
            frame.select(pl.col(n).cast(k) for n, k in kinds.items()) if frame.height else missing for frame in frames
        ]
        return pl.concat([missing.clear(), *rows])


_BEFORE_ROWS: Final = {
    "partition": pa.string(), "change": pa.string(), "requested": MOMENT, "completed": MOMENT, "version": pa.int64(),
    "operation": pa.string(), **dict(AUTHOR), "writers": _TEXTS,
}  # fmt: skip
_AFTER_ROWS: Final = {
    "overtaken_by": _TEXTS, "folded_by": pa.string(), "carried_by": _TEXTS, "requested_at": pa.string(),
    "completed_at": pa.string(),
}  # fmt: skip
_FACTS: Final = (
    _BEFORE_ROWS | {"columns": _TEXTS, "effect": pa.string(), "changed": _TEXTS, "because": pa.string()} | _AFTER_ROWS
)


def why(session: Session, key: object, column: str | None, as_of: AsOf | None) -> pa.Table:
    value, cut = value_at(session, as_of)
    snapshot = Snapshot.seal(session, value, cut)
    names, schema = snapshot.names, TableSchema.from_json(snapshot.value.schema)
    config, shown = shown_table(session.config, value)
    rows = known_columns(key_rows([key], config.key.fields, shown.declared), names, schema)
    stored = schema.select(rows.column_names).normalise(rows)
    record_key = session.config.key.record_keys(stored)[0].as_py()
    values = {name: rows[name][0].as_py() for name in rows.column_names}
    condition = conjunction([pl.col(name) == value for name, value in values.items() if value is not None])
    assert condition is not None, "a record key contains a value"
    lines = life_of(snapshot, condition, record_key)
    chosen = names.visible(schema.declared.names) if column is None else [names.one(column, schema)]
    if column is not None:
        lines = [line for line in lines if _concerns(line, chosen)]
    return _HistoryTable(snapshot, lines, chosen).table()


def _concerns(line: Line, columns: Sequence[str]) -> bool:
    """Return True if a contribution sets any of the columns, or creates or ends a row."""
    return not line.written.height or bool({*columns} & {*line.given}) or line.before.height != line.after.height


def _structs(rows: pa.Table, fields: Sequence[pa.Field], frames: Sequence[pl.DataFrame]) -> pa.StructArray:
    arrays = [column.combine_chunks() for column in rows.columns]
    absent = pa.array([frame.height == 0 for frame in frames], pa.bool_())
    return pa.StructArray.from_arrays(arrays, fields=list(fields), mask=absent)


def _effect(line: Line, changed: Sequence[str]) -> str:
    was, stays = line.before.height > 0, line.after.height > 0
    if was and stays:
        return "updated" if changed else "none"
    return "inserted" if stays else "deleted" if was else "none"


def _differs(line: Line, name: str) -> bool:
    """Return True if a contribution changes a column; a row that appears or disappears changes its non-null columns."""
    values = [frame[name] for frame in (line.before, line.after) if frame.height]
    if len(values) == 1:
        return not values[0].null_count()
    return len(values) == 2 and not values[0].equals(values[1], null_equal=True)


def because(line: Line, rule: MergeRule, columns: Sequence[str], shown_of: Callable[[str], str]) -> str:
    match line.change:
        case "kept":
            return "a compaction folded older commits into this row"
        case "rewritten" if line.commit is not None and not is_commit(line.commit):
            return "a Hudi service moved the row to another file group"
        case "rewritten":
            return "the commit rewrote the row and replaced all earlier contributions"
        case "removed":
            return "the commit replaced all rows and dropped this row"
        case "delete" if line.ordering is None:
            return "a delete removes all earlier contributions"
    said = _rule_said(line, rule, columns, shown_of)
    return f"the commit deletes the row first; {said}" if line.after_delete else said


def _rule_said(line: Line, rule: MergeRule, columns: Sequence[str], shown_of: Callable[[str], str]) -> str:
    if rule.kind == "latest":
        if not line.after.height:
            return "a later delete wins"
        time = str(line.after[COMMIT_TIME][0])
        is_own = time == line.requested
        return f"the last requested commit sets the whole row{'' if is_own else f': that of {time}'}"
    if rule.ordering is None:
        return _columns_said(line, rule, columns, shown_of)
    said = _ordering_said(line, rule.ordering, shown_of(rule.ordering))
    return f"{said}; {_columns_said(line, rule, columns, shown_of)}" if rule.has_orders and line.given else said


def _ordering_said(line: Line, ordering: str, name: str) -> str:
    own = line.written[ordering][0] if line.written.height else line.ordering
    if line.before.height and not line.after_delete and line.before[ordering][0] is not None:
        other = line.before[ordering][0]
        how = "is less than" if _is_less(own, other) else "is not less than"
        return f"{name} {own} {how} the row's {other}"
    if line.written.height and not line.after.height:
        return f"{name} {own} is less than the value of a delete"
    return f"no row exists yet to compare {name} with"


def _is_less(one: Any, other: Any) -> bool:
    """Compare as the merge does: null is the least value, NaN the greatest."""
    if one is None or other is None:
        return one is None and other is not None
    values = pl.Series([one, other])
    return bool(values.sort()[0] == one) and not bool(values.equals(values.reverse(), null_equal=True))


def _columns_said(line: Line, rule: MergeRule, columns: Sequence[str], shown_of: Callable[[str], str]) -> str:
    by_payload: dict[str, list[str]] = {}
    given = {*line.given}.intersection(columns)
    for member in rule.members:
        own = [shown_of(name) for name in member.columns if name in given]
        if own:
            by_payload.setdefault(member.payload.name, []).extend(own)
    merged = rule.merged
    plain = [shown_of(name) for name in columns if name in given and name not in merged]
    said = [f"{', '.join(names)}: merged by {payload}" for payload, names in by_payload.items()]
    if plain:
        last = "the value of the last requested commit"
        if rule.ordering is not None:
            last = f"the value with the greatest {shown_of(rule.ordering)}"
        others = f" in other columns than {', '.join(map(shown_of, line.nulls))}" if line.nulls else ""
        last += f", except nulls{others}" if rule.nulls == "keep" else ""
        said.insert(0, f"{', '.join(plain)}: {last}")
    return "; ".join(said) or "it sets none of the columns"
