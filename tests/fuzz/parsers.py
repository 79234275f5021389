"""Every parser of bytes or texts that come from elsewhere, by the name that the command line knows it by.

A parser is called as the engine calls it, by the outermost function that an object of its kind goes through: what is
raised below that and caught there is no finding. What it gives is looked at as far as the engine does at once.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache, partial
from typing import Any, BinaryIO, Final
from zlib import crc32

import numpy as np
import polars as pl
import pyarrow as pa

import crdt_mor as mor
from crdt_mor.api.files import FileRows
from crdt_mor.api.files_places import Places
from crdt_mor.api.reading import point_of
from crdt_mor.api.statements import check_token_form
from crdt_mor.cli import inputs
from crdt_mor.columns.schema import TableSchema
from crdt_mor.format import (
    archive,
    avro_record,
    base_file,
    bloom,
    clean,
    commit,
    log,
    log_compaction,
    properties,
    savepoint,
)
from crdt_mor.format.row_groups import choose
from crdt_mor.ground.parquet import ParquetSource
from crdt_mor.ground.thrift import decode, encode
from crdt_mor.hudi.adoption_instants import _completion
from crdt_mor.log import posts
from crdt_mor.log.paths import post_in
from crdt_mor.merge.contributions import row_groups
from crdt_mor.merge.rule import Member
from crdt_mor.merge.states import fold_states, shown
from crdt_mor.model import file_ids, layout, names, policies
from crdt_mor.model.config import TableConfig
from crdt_mor.model.cut import Cut
from crdt_mor.model.field_ids import field_ids
from crdt_mor.model.instant import InstantTime
from crdt_mor.model.keys import KeySpec
from crdt_mor.model.points import check_point, is_checkpoint, parse_point
from crdt_mor.model.rules import rules_in
from crdt_mor.model.slices import fold_slices
from crdt_mor.model.timeline import Timeline
from crdt_mor.model.timeline_json import decode_file_ids, decode_schema, decode_segment
from crdt_mor.payloads import Distinct
from crdt_mor.planners.clean import CleanPlan
from crdt_mor.planners.compaction import CompactionPlan
from crdt_mor.planners.erasure import Erasure
from crdt_mor.planners.restore import RestorePlan
from crdt_mor.read.conditions import checked
from crdt_mor.write.posts import _MISFITS, statement_in
from tests.fuzz import corpus, corpus_texts, hints, tables
from tests.fuzz.mutation import Shape
from tests.fuzz.watch import Allowed, nothing

_DISTINCT: Final = Member(("n",), Distinct(), pl.Int64(), "n_state")
_TIMELINE_NAME: Final = names.TimelineFileName(
    InstantTime("20260101000000000"), "deltacommit", "completed", InstantTime("20260101000000002")
)


@dataclass(frozen=True)
class Parser:
    """What is called, what its inputs are made of, and in which shape.

    mend: makes checksums and sizes right again. allowed: what it may do to the machine.
    """

    parse: Callable[[bytes], object]
    seeds: Callable[[], list[bytes]]
    shape: Shape = "bytes"
    mend: Callable[[bytes], bytes] = bytes
    allowed: Allowed = nothing


def _each(data: bytes, *parsers: Callable[[bytes], object]) -> None:
    """Parse the same bytes as objects of several kinds; an input is any of them."""
    for parse in parsers:
        try:
            parse(data)
        except mor.CrdtMorError:
            continue


def _text(data: bytes) -> str:
    return (
        data.decode("utf-8", "surrogatepass" if b"\xed" in data else "replace")
        if _is_text(data)
        else data.decode("latin-1")
    )


def _is_text(data: bytes) -> bool:
    try:
        data.decode("utf-8", "surrogatepass")
    except UnicodeDecodeError:
        return False
    return True


# --- logs and base files ----------------------------------------------------------------------------------------------


def _log(data: bytes) -> None:
    blocks = log.read_blocks(data, "log")
    log_compaction.places([block for block, stands in zip(blocks, log.standing(blocks), strict=True) if stands])
    log.decode_deletes([block for block in blocks if block.kind is log.BlockKind.DELETE])
    for block in blocks:
        if block.kind is log.BlockKind.AVRO:
            log.decode_avro(block)


def _whole_block(data: bytes) -> bytes:
    """A block whose two sizes are those of the bytes that are there."""
    if len(data) < 40:
        return data
    return data[:6] + (len(data) - 14).to_bytes(8, "big") + data[14:-8] + (len(data) - 8).to_bytes(8, "big")


def _deletes(data: bytes) -> None:
    log.decode_deletes([_block(log.BlockKind.DELETE, "{}", data)])


def _whole_deletes(data: bytes) -> bytes:
    return b"\0\0\0\3" + (len(data) - 8).to_bytes(4, "big") + data[8:] if len(data) > 8 else data


def _avro_rows(data: bytes) -> None:
    schema, _, content = data.partition(b"\n")
    frame = pl.from_arrow(log.decode_avro(_block(log.BlockKind.AVRO, _text(schema), content)))
    assert isinstance(frame, pl.DataFrame)


def _block(kind: log.BlockKind, schema: str, content: bytes) -> log.LogBlock:
    return log.LogBlock(kind, InstantTime("20260101000000000"), schema, False, {}, memoryview(content), 0, "log")


def _footer(data: bytes) -> None:
    struct = decode(data)
    encode(struct)
    for columns in (None, {"id", "n"}, {"none"}):
        choose(data, columns, {0})


def _parquet(data: bytes) -> None:
    source = ParquetSource.in_memory(data, name="file")
    row_groups(source, "_hoodie_record_key")
    bloom.may_have(source, "_hoodie_record_key", ["a", "7"])
    footer = base_file.read_footer(source)
    _ = footer.latest_requested, footer.order


def _sketch(data: bytes) -> None:
    """A state of one key is merged with another one, and shown; that of another key is shown as it is."""
    few, several = corpus.sketches()[:2]
    keys = pl.Series(["a", "b", "c"])
    states = pl.Series([data, few, data, several], dtype=pl.Binary)
    folded = fold_states(_DISTINCT, states, np.array([0, 0, 1, 2]), keys)
    shown(_DISTINCT, folded, ["n"], keys)


# --- Hudi's timeline --------------------------------------------------------------------------------------------------


def _commit(data: bytes) -> None:
    for replace in (False, True):
        try:
            metadata = commit.decode_commit(data, "path", replace=replace)
        except mor.CrdtMorError:
            continue
        fold_slices([_completion(_TIMELINE_NAME, metadata)])


def _actions(data: bytes) -> None:
    _each(
        data,
        lambda data: commit.decode_compaction_plan(data, "path"),
        lambda data: clean.decode_clean_plan(data, "path"),
        lambda data: clean.decode_clean(data, "path"),
        lambda data: clean.decode_savepoint(data, "path"),
        lambda data: savepoint.decode_savepoint_record(data, "path"),
        lambda data: avro_record.notes_of(data, "path"),
    )


def _archive(data: bytes) -> None:
    for name in _found(lambda: archive.decode_manifest(data, "path"), ()):
        archive.manifest_number(name)
    _found(lambda: archive.newest_manifest(data, ["manifest_1"], "folder"), None)
    for instant in _found(lambda: archive.decode_instants(data, "path"), []):
        _commit(instant.metadata)
    archive.merge_data_files([(data, "path")])


def _found(call: Callable[[], Any], instead: Any) -> Any:
    try:
        return call()
    except mor.CrdtMorError:
        return instead


# --- our own timeline -------------------------------------------------------------------------------------------------


def _value(data: bytes) -> None:
    value = Timeline.decode(data, "path")
    fold_slices(value.completions)
    schema = TableSchema.from_json(value.schema)
    value.names.outward(schema)
    policies.Policies.of(value.properties)
    layout.Layout.of(value.properties)


def _segment(data: bytes) -> None:
    _each(
        data,
        lambda data: fold_slices(decode_segment(data, "path")),
        lambda data: decode_file_ids(data, "path").of("part=x", 3),
        lambda data: decode_schema(data, "path"),
    )


def _plan(data: bytes) -> None:
    _each(
        data,
        lambda data: CompactionPlan.decode(data, "path"),
        lambda data: CleanPlan.decode(data, "path"),
        lambda data: RestorePlan.decode(data, "path"),
        lambda data: Erasure.decode(data, "path"),
    )


def _post(data: bytes) -> None:
    for path in ("posts/7-abcdefabcdef", "posts/7-abcdefabcdef.json"):
        found = posts.decode(data, path, corpus.TABLE_ID)
        if isinstance(found, posts.Post):
            try:
                statement_in(found)
            except _MISFITS:
                continue  # as `group_of` takes it: the owner of the post is told


def _whole_post(data: bytes) -> bytes:
    """A post whose checksum is that of its content."""
    line, newline, content = data.partition(b"\n")
    before, found, _ = line.rpartition(b'"crc32":')
    return before + found + f"{crc32(content)}}}".encode() + newline + content if found else data


# --- texts ------------------------------------------------------------------------------------------------------------


def _properties(data: bytes) -> None:
    found = properties.decode(data, "path")
    properties.encode(found)
    config = TableConfig.from_properties(found, "where")
    rules_in(found)
    config.created_schema()
    _ = config.unset_values, config.virtual_keys


def _table_properties(data: bytes) -> None:
    _each(data, lambda data: properties.decode_table(data, "path"), _properties)


def _schema(data: bytes) -> None:
    _each(
        data,
        lambda data: TableSchema.from_json(_text(data)),
        lambda data: field_ids(_text(data)),
        lambda data: TableSchema.from_avro(_text(data)),
    )


def _names(data: bytes) -> None:
    text = _text(data)
    name = names.data_file_name(text)
    names.timeline_file_name(text)
    names.TimelineFileName.parse_layout_one(text)
    archive.manifest_number(text)
    post_in(text)
    names.bucket_of_file_id(text)
    names.driver_of_token(text)
    assert name is None or str(name) in text or isinstance(name, names.LogFileName)
    for spec in (KeySpec(("id",), ("part",), hive_style=True, url_encode=True), KeySpec(("id",), ("n", "day"))):
        spec.partition_values(text, corpus.SCHEMA)
    _ = file_ids.FIXED.of(text, 3)


def _path(data: bytes) -> None:
    tables.put_and_removed(_text(data))


def _point(data: bytes) -> None:
    text = _text(data)
    for checkpoint in (False, True):
        point = _found(partial(parse_point, text, checkpoint=checkpoint), None)
        if isinstance(point, str) and is_checkpoint(point):
            _found(partial(Cut.parse, point), None)
        elif point is not None:
            _found(partial(check_point, point), None)
    _found(partial(check_point, text, local=True), None)
    _found(partial(point_of, text), None)


def _token(data: bytes) -> None:
    import typer

    try:
        token = inputs.token(_text(data))
    except typer.BadParameter:
        return
    check_token_form(token)


@cache
def _filtered() -> TableSchema:
    return TableSchema.of(corpus.SCHEMA)


def _filter(data: bytes) -> None:
    text = _text(data)
    checked(text, _filtered())


# --- files of the user ------------------------------------------------------------------------------------------------


class _Held(Places):
    """A file that is in memory."""

    def __init__(self, data: bytes) -> None:
        super().__init__()
        self._data = data

    def source(self, path: str) -> str | BinaryIO:
        return io.BytesIO(self._data)

    def stream(self, path: str) -> pa.NativeFile:
        return pa.BufferReader(self._data)


def _source(ending: str) -> Parser:
    """The parser of files with an ending, whose types are guessed, and then given."""

    def parse(data: bytes) -> None:
        for types in (None, corpus.SCHEMA):
            try:
                FileRows((f"file.{ending}",), types, _Held(data)).to_arrow()
            except mor.CrdtMorError:
                continue

    shapes: dict[str, Shape] = {"csv": "lines", "json": "json"}
    return Parser(parse, lambda: corpus_texts.source_files()[ending], shapes.get(ending, "bytes"))


def _encoded(*texts: str) -> list[bytes]:
    return [text.encode() for text in texts]


PARSERS: Final[Mapping[str, Parser]] = {
    "log": Parser(_log, corpus.logs, mend=_whole_block),
    "deletes": Parser(_deletes, corpus.delete_contents, mend=_whole_deletes),
    "avro-rows": Parser(
        _avro_rows, lambda: [f"{schema}\n".encode() + content for schema, content in corpus.avro_blocks()], "json"
    ),
    "footer": Parser(_footer, corpus.footers),
    "parquet": Parser(_parquet, corpus.parquets),
    "sketch": Parser(_sketch, corpus.sketches),
    "commit": Parser(_commit, corpus.commits, "json"),
    "actions": Parser(_actions, corpus.actions),
    "archive": Parser(_archive, corpus.archives, "json"),
    "value": Parser(_value, corpus.values, "json"),
    "segment": Parser(_segment, corpus.segments, "json"),
    "plan": Parser(_plan, corpus.plans, "json"),
    "hint": Parser(hints.parse, hints.hints, mend=hints.whole),
    "post": Parser(_post, corpus.posts, "json", mend=_whole_post),
    "properties": Parser(_table_properties, corpus_texts.properties_of_tables, "lines"),
    "schema": Parser(_schema, corpus_texts.schemas, "json"),
    "names": Parser(_names, lambda: _encoded(*corpus_texts.NAMES), "lines"),
    "path": Parser(_path, lambda: _encoded(*corpus_texts.PATHS), "lines", allowed=tables.is_inside),
    "point": Parser(_point, lambda: _encoded(*corpus_texts.POINTS), "lines"),
    "token": Parser(_token, lambda: _encoded("loader:17", "a:b:1", ":", "x:0"), "lines"),
    "filter": Parser(_filter, lambda: _encoded(*corpus_texts.FILTERS), "lines"),
    "source-parquet": _source("parquet"),
    "source-arrow": _source("arrow"),
    "source-csv": _source("csv"),
    "source-json": _source("json"),
    "table": Parser(tables.used, tables.seeds, "json"),
}
"""By name; `table` uses a whole table of which one object is replaced."""


def parser_of(name: str) -> Parser:
    """The parser of a name; ends the program where there is none."""
    if name not in PARSERS:
        raise SystemExit(f"there is no parser {name!r}; --list names them")
    return PARSERS[name]
