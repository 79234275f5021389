"""Tables on terminals of few columns: keys stay whole, texts are cut, and columns without room are named."""

from __future__ import annotations

import io

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from crdt_mor.cli import render

_COLUMNS = ["first_name", "note", "amount", "street", "email", "id"]
_ROW = [
    "Ann",
    "the nightly load of people, from the second source",
    1234567.25,
    "Via Appia Antica 12",
    "ann@example.org",
]


@pytest.fixture
def screen(monkeypatch: pytest.MonkeyPatch) -> io.StringIO:
    """A terminal of 60 columns."""
    lines = io.StringIO()
    monkeypatch.setattr(render, "stdout", lambda: Console(file=lines, force_terminal=True, width=60, no_color=True))
    return lines


def _draw() -> None:
    render.table(_COLUMNS, [[*_ROW, "key-0123456789-0123456789"]], ["amount"], ["id"])


def test_table_on_a_narrow_terminal_shows_the_key_whole(
    screen: io.StringIO, capsys: pytest.CaptureFixture[str]
) -> None:
    _draw()
    seen = screen.getvalue()
    assert "key-0123456789-0123456789" in seen
    assert "the nightly" in seen
    assert "…" in seen
    assert "email" not in seen
    assert "3 more columns did not fit: amount, street, email" in capsys.readouterr().err.replace("\n", " ")


def test_table_with_a_key_wider_than_the_terminal_folds_the_key(screen: io.StringIO) -> None:
    key = "k" * 150
    render.table(["id", "n"], [[key, 1]], ["n"], ["id"])
    seen = screen.getvalue()
    assert seen.count("k") == 150
    assert "…" not in seen


def test_table_in_a_pipe_shows_every_column_whole(capsys: pytest.CaptureFixture[str]) -> None:
    wide = "w" * 20_000
    render.table([*_COLUMNS, "wide"], [[*_ROW, "key", wide]], ["amount"], ["id"])
    out, err = capsys.readouterr()
    assert wide in out
    assert "from the second source" in out
    assert err == ""


@given(
    st.lists(st.tuples(st.integers(0, 40), st.integers(0, 40), st.booleans()), min_size=1, max_size=12),
    st.integers(1, 200),
)
def test_fitted_widths_stay_in_the_room_and_between_their_bounds(
    columns: list[tuple[int, int, bool]], room: int
) -> None:
    natural = [max(pair[:2]) for pair in columns]
    least = [min(pair[:2]) for pair in columns]
    kept = [pair[2] for pair in columns]
    widths = render.fitted(natural, least, kept, room)
    shown = [width for width in widths if width is not None]
    needed = sum(least[at] for at, keep in enumerate(kept) if keep) + render.GAP * (sum(kept) - 1)
    assert sum(shown) + render.GAP * (len(shown) - 1) <= max(room, needed)
    for at, width in enumerate(widths):
        assert width is not None or not kept[at]
        assert width is None or least[at] <= width <= natural[at]
    if sum(natural) + render.GAP * (len(natural) - 1) <= room:
        assert widths == natural
