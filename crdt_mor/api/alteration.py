"""`Table.alter`: what columns are called, which of them are shown, and what is said of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final

from crdt_mor.api.create import names_of
from crdt_mor.errors import InvalidInputError, UnsupportedFeatureError
from crdt_mor.events import alteration as events
from crdt_mor.events.session import Session
from crdt_mor.ground.deadlines import operations
from crdt_mor.model.alteration_event import Asked
from crdt_mor.model.authors import application_of, check_info
from crdt_mor.write.refusals import require_writable

COMMENT_MAX: Final = 1024
"""Characters of what is said of a column."""


@operations
class AlteredColumns:
    """The part of a table that says what its columns are called."""

    _session: Session

    def alter(
        self,
        *,
        rename: Mapping[str, str] | None = None,
        drop: str | Sequence[str] = (),
        comment: Mapping[str, str | None] | None = None,
        commit_info: Mapping[str, str] | None = None,
    ) -> None:
        """Change what columns are called, which of them are shown, and what is said of them, in one event.

        No file changes and nobody waits: rows of writes that began before arrive under the new names. Any column may be
        renamed, those of the key, too, and columns may exchange their names. What Hudi's readers see stays as it is.

        rename: the new names, by those that the columns have; any text. drop: columns that nobody sees from here on;
            their bytes stay in the files, and so do earlier views, `scan(as_of=…, names="then")`. A column of the same
            name that is added later is another one. comment: texts by the names that the columns have before, or
            get; None takes one away; `comments` has them.
        commit_info: as of `upsert`.

        Raises `InvalidInputError` for columns that there are not, names that others have, a drop of what the key, the
        partitions, an ordering or `cluster_by` need; `UnsupportedFeatureError` for a table that Hudi made.
        """
        alter(self._session, rename, drop, comment, commit_info)

    @property
    def comments(self) -> Mapping[str, str]:
        """What is said of columns, by their names: see `alter`."""
        names = self._session.views.sealed().names
        return MappingProxyType({names.shown(stored): text for stored, text in names.comments})


def alter(
    session: Session,
    rename: Mapping[str, str] | None,
    drop: str | Sequence[str],
    comment: Mapping[str, str | None] | None,
    commit_info: Mapping[str, str] | None,
) -> None:
    """See `Table.alter`."""
    asked = Asked(_texts("rename", rename), names_of(drop), _comments(comment))
    info = check_info(commit_info)
    if not (asked.renames or asked.drops or asked.comments):
        raise InvalidInputError('say what to alter: alter(rename={"a": "b"}, drop=["c"], comment={"d": "metres"})')
    require_writable(session)
    if not session.config.ours:
        raise UnsupportedFeatureError(
            "Hudi made this table, and its writers and readers know columns by the names of its files: copy it into a "
            "table of ours, Table.create(...).append(Table.open(...).scan()), and alter that one. "
            f"table={session.config.name}"
        )
    session.start()
    author = session.author(application_of(info, None), info)
    session.remember(session.run(events.alter(session.publisher, session.known(), asked, session.config, author)))


def _texts(word: str, given: Any) -> Mapping[str, str]:
    if given is None:
        return {}
    if not isinstance(given, Mapping) or not all(isinstance(text, str) for pair in given.items() for text in pair):
        raise InvalidInputError(f'columns are named by texts: {word}={{"a": "b"}}. {word}={given!r}')
    return dict(given)


def _comments(given: Any) -> Mapping[str, str | None]:
    said = {} if given is None else given
    if not isinstance(said, Mapping):
        raise InvalidInputError(f'columns are named by texts: comment={{"a": "metres"}}. comment={given!r}')
    _texts("comment", {name: text for name, text in said.items() if text is not None})
    long = [name for name, text in said.items() if text is not None and len(text) > COMMENT_MAX]
    if long:
        raise InvalidInputError(f"a comment has at most {COMMENT_MAX} characters: shorten it. columns={long}")
    return dict(said)
