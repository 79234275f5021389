"""`Table.alter`: rename, hide, widen and comment on columns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from types import MappingProxyType
from typing import Any, Final

import pyarrow as pa

from crdt_mor.api.statements import names_of
from crdt_mor.errors import InvalidInputError, UnsupportedFeatureError
from crdt_mor.events import alteration as events
from crdt_mor.events.session import Session
from crdt_mor.ground.deadlines import operations
from crdt_mor.model.alteration_event import AlterationRequest
from crdt_mor.model.authors import application_of, check_info
from crdt_mor.write.growing import require_growth
from crdt_mor.write.refusals import require_writable

COMMENT_MAX: Final = 1024
"""Characters of a column's comment."""


@operations
class AlteredColumns:
    """The part of `Table` for names and comments of columns."""

    _session: Session

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
            comment: comments by current or new name; None removes one.
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

    @property
    def comments(self) -> Mapping[str, str]:
        """The comments of columns by name, see `alter`."""
        names = self._session.views.sealed().names
        return MappingProxyType({names.shown(stored): text for stored, text in names.comments})


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
    require_writable(session)
    if names and not session.config.ours:
        raise UnsupportedFeatureError(
            "Hudi made this table, so its column names are fixed: copy the rows to a new table, "
            "Table.create(...).append(Table(...).scan()), and alter the copy. "
            f"table={session.config.name}"
        )
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
