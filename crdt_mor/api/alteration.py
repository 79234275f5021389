"""`Table.alter` and `Table.add_columns`: add, rename, hide, widen and comment on columns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta
from functools import partial, reduce
from operator import or_
from typing import Any, Final

import polars as pl
import pyarrow as pa

from crdt_mor.api.data import SchemaLike, read_schema
from crdt_mor.api.statements import WAIT, names_of
from crdt_mor.api.table_rules import TableRules
from crdt_mor.api.table_writes import TableWrites
from crdt_mor.columns.schema import TableSchema
from crdt_mor.errors import CrdtMorError, InvalidInputError, UnsupportedFeatureError
from crdt_mor.events import alteration as events
from crdt_mor.events.session import Session
from crdt_mor.ground.deadlines import operations
from crdt_mor.model.alteration_event import AlterationRequest, field_above, with_columns
from crdt_mor.model.authors import Info, application_of, check_info
from crdt_mor.model.policies import milliseconds
from crdt_mor.write.growing import require_growth
from crdt_mor.write.named import shown_config
from crdt_mor.write.refusals import require_writable

COMMENT_MAX: Final = 1024
"""Characters of a column's comment."""


@operations
class AlteredColumns(TableWrites, TableRules):
    """The part of `Table` for its columns, with the writes and rules that defaults need."""

    _session: Session

    def add_columns(
        self,
        columns: SchemaLike,
        *,
        default: Mapping[str, Any] | None = None,
        comment: Mapping[str, str] | None = None,
        wait: timedelta = WAIT,
        commit_info: Mapping[str, str] | None = None,
    ) -> None:
        """Add columns without rows: `add_columns({"note": pa.string()})`.

        No file changes and no writer waits. Existing rows are null there. A default is a rule for later writes, and an
        update writes it to all existing rows, so every engine reads it; that takes as long as `update` of all rows.

        Args:
            columns: names and types, as `schema` in `create`. For a field inside a column use `alter(widen=...)`.
            default: values by new column: a number, text, truth value, date or time.
            comment: comments by new column.
            wait: with `default`, how long the update waits for earlier writes.
            commit_info: as in `upsert`.

        Raises:
            InvalidInputError: a column exists, or cannot have this name or default.
            EarlierWritePendingError: the wait was too short. The columns and rules are there; the error names the
                update that is missing.
        """
        milliseconds("wait", wait)
        add_columns(self._session, columns, default or {}, comment, commit_info)
        if default:
            from crdt_mor.api.rules import Rules

            self.add_rules(Rules(default=default))
            self._fill([*default], wait, commit_info)

    def _fill(self, names: Sequence[str], wait: timedelta, commit_info: Mapping[str, str] | None) -> None:
        """Write the defaults of columns to the rows that are null there.

        The update waits for all writes that began before the rules, and later writes obey them.
        """
        values = {name: pl.lit(self.rules.default[name]) for name in names}
        try:
            self.update(
                {name: pl.coalesce(pl.col(name), value) for name, value in values.items()},
                reduce(or_, (pl.col(name).is_null() for name in names)),
                wait=wait,
                commit_info=commit_info,
            )
        except CrdtMorError as error:
            said = (
                "the columns and the defaults of later writes are there, but existing rows are null: write the "
                f"defaults with update(...). {error} columns={[*names]}"
            )
            error.args = (said, *error.args[1:])
            raise

    def alter(
        self,
        *,
        rename: Mapping[str, str] | None = None,
        drop: str | Sequence[str] = (),
        comment: Mapping[str, str | None] | None = None,
        widen: Mapping[str, pa.DataType] | None = None,
        commit_info: Mapping[str, str] | None = None,
    ) -> None:
        """Rename, hide, widen or comment on columns in one event.

        No file changes and no writer waits: rows of running writes arrive under the new names. Key columns may be
        renamed, and columns may swap names. Hudi's readers see no change.

        Args:
            rename: new names by current names.
            drop: columns to hide. Their bytes stay in the files, and earlier views show them, `scan(as_of=…,
                names="then")`. A later column of the same name is a new column.
            comment: comments by current or new name; None removes one. `inspect.comments()` returns them.
            widen: types by current name. The column then holds the values of both types, as after a write with
                `schema_mode="merge"`.
            commit_info: as in `upsert`.

        Raises:
            InvalidInputError: a column does not exist, a name is taken, or the key, partitions, ordering or
                `cluster_by` use a dropped column.
            SchemaMismatchError: no type holds the values of both, see docs/types.md.
            UnsupportedFeatureError: Hudi made the table.

        Example:
            >>> table.alter(rename={"views": "clicks"}, comment={"clicks": "since May"})
            >>> table.schema.names
            ['id', 'clicks']
        """
        alter(self._session, rename, drop, comment, widen, commit_info)


def add_columns(
    session: Session,
    columns: SchemaLike,
    default: Mapping[str, Any],
    comment: Mapping[str, str] | None,
    commit_info: Mapping[str, str] | None,
) -> None:
    """Add columns and comments. default: only checked."""
    added = read_schema(columns)
    asked, info = AlterationRequest(comments=_comments(comment), added=added), check_info(commit_info)
    other = [name for name in (*default, *asked.comments) if name not in added.names]
    if not added.names or other:
        raise InvalidInputError(
            'pass new columns and their types, with defaults and comments only for them: add_columns({"a": '
            f'pa.int64()}}, default={{"a": 0}}). columns={added.names} unknown={other}'
        )
    session.adopt()
    _require_addable(session, added, default, bool(asked.comments))
    _publish(session, asked, info)


def _require_addable(session: Session, added: pa.Schema, default: Mapping[str, Any], has_comments: bool) -> None:
    """Raise if columns exist, or may not be added, or cannot have the defaults."""
    from crdt_mor.write.rules import rules_in_stored_names

    tail = session.tail()
    schema, config = TableSchema.from_json(tail.schema), session.config
    known = tail.names.outward(schema)
    inside = {name: above for name in added.names if (above := field_above(name, known)) is not None}
    if inside:
        raise InvalidInputError(
            'pass the field inside its column: alter(widen={"a": pa.struct([("field", pa.int64())])}) adds it. '
            f"columns={inside}"
        )
    taken = [name for name in added.names if name in known]
    untyped = [column.name for column in added if pa.types.is_null(column.type)]
    if taken or untyped:
        raise InvalidInputError(
            "add_columns takes new names with types; alter(widen=...) gives a column a wider type. "
            f"existing={taken} without_type={untyped}"
        )
    grown, names, new = with_columns(schema, tail.names, added)
    require_growth(config, tail.rules, schema, grown)
    rules_in_stored_names((), {}, default, shown_config(config, names), grown, names)
    _require_ours(session, has_names=has_comments or any(own != shown for own, shown in new.items()))


def alter(
    session: Session,
    rename: Mapping[str, str] | None,
    drop: str | Sequence[str],
    comment: Mapping[str, str | None] | None,
    widen: Mapping[str, pa.DataType] | None,
    commit_info: Mapping[str, str] | None,
) -> None:
    asked = AlterationRequest(_texts("rename", rename), names_of(drop), _comments(comment), _types(widen))
    info = check_info(commit_info)
    names = asked.renames or asked.drops or asked.comments
    if not (names or asked.widened):
        raise InvalidInputError(
            'pass rename, drop, comment or widen: alter(rename={"a": "b"}, drop=["c"], comment={"d": "metres"}, '
            'widen={"e": pa.int64()})'
        )
    _require_ours(session, has_names=bool(names))
    _publish(session, asked, info)


def _require_ours(session: Session, *, has_names: bool) -> None:
    """Raise if the table takes no writes, or if Hudi made a table whose names or comments would change."""
    require_writable(session)
    if has_names and not session.config.ours:
        raise UnsupportedFeatureError(
            "Hudi made this table, so its column names are fixed: copy the rows to a new table, "
            "Table.create(...).append(Table(...).scan()), and alter the copy. "
            f"table={session.config.name}"
        )


def _publish(session: Session, asked: AlterationRequest, info: Info) -> None:
    session.start()
    author = session.author(application_of(info, None), info)
    check, config = partial(require_growth, session.config), session.config
    steps = events.alter(session.publisher, session.known_tail(), asked, config, check, author)
    session.remember(session.run(steps))


def _texts(word: str, given: Any) -> Mapping[str, str]:
    if given is None:
        return {}
    if not isinstance(given, Mapping) or not all(isinstance(text, str) for pair in given.items() for text in pair):
        raise InvalidInputError(f'column names must be strings: {word}={{"a": "b"}}. {word}={given!r}')
    return dict(given)


def _types(given: Any) -> Mapping[str, pa.DataType]:
    types = {} if given is None else given
    if not isinstance(types, Mapping) or not all(isinstance(kind, pa.DataType) for kind in types.values()):
        raise InvalidInputError(f'pass a type of pyarrow for each column: widen={{"a": pa.int64()}}. widen={given!r}')
    return dict(types)


def _comments(given: Any) -> Mapping[str, str | None]:
    said = {} if given is None else given
    if not isinstance(said, Mapping):
        raise InvalidInputError(f'column names must be strings: comment={{"a": "metres"}}. comment={given!r}')
    _texts("comment", {name: text for name, text in said.items() if text is not None})
    long = [name for name, text in said.items() if text is not None and len(text) > COMMENT_MAX]
    if long:
        raise InvalidInputError(
            f"a comment may have at most {COMMENT_MAX} characters: shorten the text. columns={long}"
        )
    return dict(said)
