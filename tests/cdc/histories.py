"""Random histories of a database table, and their events in the form of each feed."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from hypothesis import strategies as st

Kind = Literal["write", "delete", "move", "truncate"]
Row = dict[str, Any]
MARKER = "__debezium_unavailable_value"


@dataclass(frozen=True)
class Step:
    """One statement. other: the new key of a move. noted: the statement sets the column `note`, too."""

    kind: Kind
    id: int
    other: int
    noted: bool


STEPS = st.builds(
    Step,
    st.sampled_from(["write", "write", "write", "delete", "move", "truncate"]),
    st.integers(1, 4),
    st.integers(1, 4),
    st.booleans(),
)
HISTORIES = st.lists(st.lists(STEPS, max_size=4), min_size=1, max_size=8)


@dataclass(frozen=True)
class Effect:
    """What a statement did to a row; without rows a truncation."""

    before: Row | None
    after: Row | None


@dataclass
class History:
    """Transactions of effects, and the table after each. Each row has a number of its own, `seq`."""

    transactions: list[list[Effect]] = field(default_factory=list)
    states: list[dict[int, Row]] = field(default_factory=lambda: [{}])

    @classmethod
    def of(cls, transactions: Sequence[Sequence[Step]]) -> History:
        history, seq = cls(), iter(range(1, 1000))
        for number, steps in enumerate(transactions):
            rows = dict(history.states[-1])
            effects = [effect for step in steps for effect in _effects(step, rows, seq, number)]
            history.transactions.append(effects)
            history.states.append(rows)
        return history


def _effects(step: Step, rows: dict[int, Row], seq: Iterator[int], number: int) -> list[Effect]:
    old = rows.get(step.id)
    match step.kind:
        case "truncate":
            rows.clear()
            return [Effect(None, None)]
        case "delete":
            rows.pop(step.id, None)
            return [] if old is None else [Effect(old, None)]
        case "move" if old is not None and step.other not in rows:
            del rows[step.id]
            rows[step.other] = old | {"id": step.other, "seq": next(seq)}
            return [Effect(old, rows[step.other])]
    new = {"id": step.id, "seq": next(seq), "note": None if old is None else old["note"]}
    if step.noted:
        new["note"] = f"note {new['seq']}"
    if number > 3:
        new["more"] = new["seq"]  # a column that came later
    rows[step.id] = new
    return [Effect(old, new)]


def unchanged(effect: Effect) -> bool:
    """Return True if the long column is unavailable in the event of an update."""
    assert effect.after is not None
    return effect.before is not None and effect.before["note"] == effect.after["note"]


# --- the feeds --------------------------------------------------------------------------------------------------------


TYPES = {"id": "bigint", "seq": "bigint", "note": "text", "more": "bigint"}


def _columns(row: Mapping[str, Any]) -> list[Row]:
    return [{"name": name, "type": TYPES[name], "value": value} for name, value in row.items()]


def wal2json(history: History) -> list[list[Any]]:
    """Return the events of each transaction."""
    found = []
    for number, effects in enumerate(history.transactions):
        place = {"xid": number, "lsn": f"0/{number * 16:X}", "nextlsn": f"0/{number * 16 + 8:X}"}
        events = [_wal2json(effect) for effect in effects]
        found.append([{"action": "B"} | place, *events, {"action": "C"} | place])
    return found


def _wal2json(effect: Effect) -> Row:
    named = {"schema": "public", "table": "t"}
    before, after = effect.before, effect.after
    if before is None and after is None:
        return {"action": "T", **named}
    identity = {} if before is None else {"identity": _columns({"id": before["id"]})}
    if after is None:
        return {"action": "D", **named, **identity}
    given = {name: value for name, value in after.items() if name != "note" or not unchanged(effect)}
    return {"action": "U" if before else "I", **named, "columns": _columns(given), **identity}


def debezium(history: History) -> list[list[Any]]:
    """Return records of a topic, each transaction followed by its end from another topic."""
    found, offset = [], iter(range(10_000))
    for number, effects in enumerate(history.transactions):
        envelopes = [envelope for effect in effects for envelope in _debezium(effect, number)]
        records: list[Any] = []
        for place, (envelope, key) in enumerate(envelopes):
            block = {"id": str(number), "total_order": place, "data_collection_order": place}
            value = envelope | {"transaction": block, "source": {"schema": "public", "table": "t", "lsn": number}}
            records.append(_record("t", next(offset), value, key))
            if envelope["op"] == "d":
                records.append(_record("t", next(offset), None, key))
        counts = [{"data_collection": "public.t", "event_count": len(envelopes)}] if envelopes else []
        end = {"status": "END", "id": str(number), "event_count": len(envelopes), "data_collections": counts}
        found.append([*records, _record("transaction", number, end)])
    return found


def _record(topic: str, offset: int, value: Any, key: Any = None) -> Row:
    encoded = None if value is None else json.dumps(value)
    return {"topic": topic, "partition": 0, "offset": offset, "value": encoded, "key": key and json.dumps(key)}


def _debezium(effect: Effect, number: int) -> list[tuple[Row, Any]]:
    before, after = effect.before, effect.after
    if before is None and after is None:
        return [({"op": "t", "before": None, "after": None}, None)]
    old = None if before is None else {"id": before["id"]}
    if after is None:
        return [({"op": "d", "before": old, "after": None}, old)]
    new = {"id": after["id"]}
    given = dict(after)
    if before is None:
        return [({"op": "c", "before": None, "after": given}, new)]
    if unchanged(effect):
        given["note"] = MARKER
    if old != new:
        return [({"op": "d", "before": old, "after": None}, old), ({"op": "c", "before": None, "after": given}, new)]
    return [({"op": "u", "before": None, "after": given}, new)]


def maxwell(history: History) -> list[list[Any]]:
    """Return records; Maxwell reports a truncation of no row, so the rows are deleted before."""
    found, offset, rows = [], iter(range(10_000)), dict[int, Row]()
    for number, effects in enumerate(history.transactions):
        events: list[Row] = []
        for effect in effects:
            events += _maxwell(effect, rows)
        records = []
        for place, event in enumerate(events):
            end = {"commit": True} if place == len(events) - 1 else {"xoffset": place}
            value = {"database": "d", "table": "t", "ts": 1, "xid": number} | event | end
            records.append(_record("maxwell", next(offset), value))
        found.append(records)
    return found


def _maxwell(effect: Effect, rows: dict[int, Row]) -> list[Row]:
    before, after = effect.before, effect.after
    if before is None and after is None:
        gone = [{"type": "delete", "data": row} for row in rows.values()]
        rows.clear()
        return gone
    if before is not None:
        del rows[before["id"]]
    if after is None:
        return [{"type": "delete", "data": before}]
    rows[after["id"]] = after
    if before is None:
        return [{"type": "insert", "data": after}]
    old = {name: before.get(name) for name, value in after.items() if before.get(name) != value}
    return [{"type": "update", "data": after, "old": old}]


def dms(history: History) -> list[list[Any]]:
    """Return messages, each of which stands alone."""
    found, offset, rows = [], iter(range(10_000)), dict[int, Row]()
    names = {"insert": "insert", "update": "update", "delete": "delete"}
    for effects in history.transactions:
        events = [event for effect in effects for event in _maxwell(effect, rows)]
        records = []
        for event in events:
            told = {"record-type": "data", "operation": names[event["type"]], "schema-name": "d", "table-name": "t"}
            value = {"data": event["data"], "metadata": told}
            if event.get("old"):
                value["before-image"] = event["data"] | event["old"]
            records.append(_record("dms", next(offset), value))
        found.append(records)
    return found


FEEDS: Mapping[str, Callable[[History], list[list[Any]]]] = {
    "wal2json": wal2json,
    "debezium": debezium,
    "maxwell": maxwell,
    "dms": dms,
}
