"""The merge of a table in its properties.

Hudi's own properties name the rule by which its readers return our rows:

    our merge               Hudi's mode              ordering.fields
    latest                  EVENT_TIME_ORDERING      _hoodie_commit_time
    ordering:<column>       EVENT_TIME_ORDERING      <column>
    partial, or payloads    CUSTOM, our strategy id  -
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import pyarrow as pa

from crdt_mor.columns.kinds import kind_of
from crdt_mor.columns.markers import marker_in
from crdt_mor.columns.schema import META_COLUMNS, TableSchema
from crdt_mor.errors import FormatError, InvalidInputError, UnsupportedVersionError
from crdt_mor.model import config_properties as hoodie
from crdt_mor.model.expiry import Expiry
from crdt_mor.model.keys import KeySpec
from crdt_mor.model.merge_spec import MergeSpec

MERGE_STRATEGY_ID: Final = "6f7a3c52-9d1e-4b8a-8f60-2c5d71e0b943"
"""For Hudi's CUSTOM mode. Hudi's readers refuse unmerged logs instead of merging them wrongly."""

_STRATEGY_MODES: Final = {
    "ce9acb64-bde0-424c-9b91-f6ebba25356d": "COMMIT_TIME_ORDERING",
    "eeb8d96f-b1e4-49fd-bbf8-28ac514178e5": "EVENT_TIME_ORDERING",
}
_PAYLOAD_STRATEGY: Final = "00000000-0000-0000-0000-000000000000"
_PAYLOAD_MODES: Final = {
    "OverwriteWithLatestAvroPayload": "COMMIT_TIME_ORDERING",
    "DefaultHoodieRecordPayload": "EVENT_TIME_ORDERING",
    "EventTimeAvroPayload": "EVENT_TIME_ORDERING",
}
_TRANSLATED_PAYLOADS: Final = {
    "AWSDmsAvroPayload": "COMMIT_TIME_ORDERING",
    "OverwriteNonDefaultsWithLatestAvroPayload": "COMMIT_TIME_ORDERING",
    "PartialUpdateAvroPayload": "EVENT_TIME_ORDERING",
    "PostgresDebeziumAvroPayload": "EVENT_TIME_ORDERING",
}
"""In tables of version 9, other properties contain the behaviour of these payload classes."""

IGNORE_DEFAULTS: Final = "IGNORE_DEFAULTS"
FILL_UNAVAILABLE: Final = "FILL_UNAVAILABLE"


def merge_properties(merge: MergeSpec) -> dict[str, str]:
    if merge.custom:
        return {hoodie.MERGE_MODE: "CUSTOM", hoodie.STRATEGY_ID: MERGE_STRATEGY_ID}
    return {hoodie.MERGE_MODE: "EVENT_TIME_ORDERING", hoodie.ORDERING: merge.ordering or META_COLUMNS[0]}


def check_merge(merge: MergeSpec, key: KeySpec, schema: TableSchema) -> None:
    _check_ordering(merge.ordering, schema)
    _check_expiry(merge.expiry, schema)
    _check_members(merge, key, schema)
    _check_markers(merge, key, schema)


def _check_markers(merge: MergeSpec, key: KeySpec, schema: TableSchema) -> None:
    for name, marker in merge.unavailable:
        if name is None:
            continue
        if name not in schema:
            known = schema.declared.names
            raise InvalidInputError(f"a column in unavailable does not exist. column={name!r} columns={known}")
        if name in (*key.identity, merge.ordering):
            raise InvalidInputError(f"key, partition and ordering columns cannot be unavailable. column={name!r}")
        kind = schema.stored.field(name).type
        if marker_in(kind, marker) is None:
            raise InvalidInputError(
                "no value of the column equals its marker: pass unavailable= of the column's type, a text, bytes or a "
                f"number. column={name!r} type={kind} unavailable={marker!r}"
            )


def _check_ordering(ordering: str | None, schema: TableSchema) -> None:
    if ordering is None:
        return
    index = schema.declared.get_field_index(ordering)
    if index < 0:
        known = schema.declared.names
        raise InvalidInputError(f"the ordering column does not exist. column={ordering} columns={known}")
    kind = schema.stored.field(index).type
    kind_of(kind).require_ordered(kind, ordering)


def _check_expiry(expiry: Expiry | None, schema: TableSchema) -> None:
    if expiry is None:
        return
    index = schema.declared.get_field_index(expiry.column)
    if index < 0:
        known = schema.declared.names
        raise InvalidInputError(f"the column of ttl does not exist. column={expiry.column} columns={known}")
    kind = schema.declared.field(index).type
    if not pa.types.is_timestamp(kind):
        raise InvalidInputError(f"the column of ttl must be a timestamp. column={expiry.column} type={kind}")


def _check_members(merge: MergeSpec, key: KeySpec, schema: TableSchema) -> None:
    identity = key.identity
    for member in merge.columns:
        if member.called:
            raise InvalidInputError(
                "a payload of several columns needs column names of ASCII letters, digits and _. Create the table "
                "with such names, then rename the columns. "
                f"columns={list(member.called)} in_files={list(member.columns)}"
            )
        for name in member.columns:
            if name not in schema:
                known = schema.declared.names
                raise InvalidInputError(f"a column in merge does not exist. column={name!r} columns={known}")
            if name in identity:
                raise InvalidInputError(
                    f"key and partition columns are never merged, as they identify the row. column={name!r}"
                )


def our_merge(props: Mapping[str, str], where: str) -> MergeSpec:
    if props[hoodie.OUR_VERSION] not in hoodie.ENGINE_VERSIONS_READ:
        raise UnsupportedVersionError(
            "this table was made by a newer crdt_mor: upgrade. "
            f"found={props[hoodie.OUR_VERSION]} supported={hoodie.ENGINE_VERSION} table={where}"
        )
    try:
        return MergeSpec.parse(hoodie.required(props, hoodie.OUR_MERGE, where))
    except InvalidInputError as error:
        raise FormatError(f"{hoodie.OUR_MERGE} is damaged: {error} table={where}") from error


def merge_of_hudi(props: Mapping[str, str], where: str) -> MergeSpec:
    """Return the merge of a table made by Hudi: from its mode, else as Hudi infers it."""
    fields = list(hoodie.names_in(props.get(hoodie.ORDERING, props.get(hoodie.PRECOMBINE, ""))))
    mode = _merge_mode(props, bool(fields), where)
    if mode == "COMMIT_TIME_ORDERING":
        return MergeSpec(hudi_commit_time=True)
    if len(fields) > 1:
        raise hoodie.unsupported("several ordering fields", where, fields=fields)
    if not fields:
        raise FormatError(f"the table orders by event time without an ordering field: set one. table={where}")
    # ordering by our meta column means commit time
    return MergeSpec() if fields == [META_COLUMNS[0]] else MergeSpec("ordering", ordering=fields[0])


def _merge_mode(props: Mapping[str, str], has_ordering: bool, where: str) -> str:
    payload = next((props[key] for key in hoodie.PAYLOAD_CLASSES if key in props), None)
    modes = _PAYLOAD_MODES | (_TRANSLATED_PAYLOADS if _is_translated(props) else {})
    known = None if payload is None else modes.get(payload.rsplit(".", 1)[-1])
    if payload is not None and known is None:
        raise hoodie.unsupported("a payload class of its own", where, payload_class=payload)
    mode, strategy = props.get(hoodie.MERGE_MODE), props.get(hoodie.STRATEGY_ID)
    if mode is None and strategy is not None:
        mode = _STRATEGY_MODES.get(strategy, "CUSTOM")
    if mode == "CUSTOM" and strategy == _PAYLOAD_STRATEGY and known is not None:
        mode = known
    mode = mode or known or ("EVENT_TIME_ORDERING" if has_ordering else "COMMIT_TIME_ORDERING")
    if mode not in ("COMMIT_TIME_ORDERING", "EVENT_TIME_ORDERING"):
        raise hoodie.unsupported("a merge of its own", where, mode=mode, strategy_id=strategy)
    return mode


def _is_translated(props: Mapping[str, str]) -> bool:
    return hoodie.LEGACY_PAYLOAD in props and hoodie.MERGE_MODE in props


def unset_values(props: Mapping[str, str], where: str) -> tuple[str | None, ...]:
    """Return the values that leave a column unchanged in the partial update mode. Empty: every value counts."""
    mode = props.get(hoodie.PARTIAL_UPDATE, "").strip().upper()
    if not mode:
        return ()
    marker = hoodie.merge_setting(props, hoodie.UNAVAILABLE)
    if mode == IGNORE_DEFAULTS:
        return (None,)
    if mode == FILL_UNAVAILABLE and marker:
        return (marker,)
    raise hoodie.unsupported("this partial update mode of the table", where, mode=mode)
