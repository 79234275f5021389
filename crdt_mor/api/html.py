"""HTML of tables, scans and changes for notebooks. All text is escaped."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Final

from crdt_mor.ground.late_imports import Late

if TYPE_CHECKING:
    import html
else:
    html = Late("html")

_LONGEST: Final = 100
"""Maximum characters of a value."""


def html_table(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    head = "".join(f"<th>{_shown(name)}</th>" for name in columns)
    body = "".join(f"<tr>{''.join(f'<td>{_shown(value)}</td>' for value in row)}</tr>" for row in rows)
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def html_line(text: str) -> str:
    return f"<p>{html.escape(text)}</p>"


def _shown(value: object) -> str:
    if value is None:
        return "<em>null</em>"
    text = str(value)
    return html.escape(text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…")
