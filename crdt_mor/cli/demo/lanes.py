"""The run as text: a lane per process, a bar per transaction.

ingest    ╺╸╺╸╺╸╺╸╺╸╺╸╺╸╺╸
late        ╺━━━━━━━━━━━━━╸      began before the encryption, completed after it, and lost to it
encrypt       ╺━━━━╸   ╺━━━╸
compact          ▲                a barrier; nobody stops for it
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rich.text import Text

from crdt_mor.cli.demo.journal import Entry
from crdt_mor.cli.demo.overlaps import Compaction, crossed, overtakings

COLOURS = {"ingest": "cyan", "late": "magenta", "encrypt": "yellow", "backfill": "green", "compact": "bright_black"}
NAME_COLUMNS = 10


@dataclass(frozen=True, slots=True)
class Bar:
    lane: str
    begin: float
    end: float
    label: str
    crosses: bool  # a whole compaction


@dataclass(frozen=True, slots=True)
class Scene:
    bars: tuple[Bar, ...]
    compactions: tuple[tuple[float, float], ...]
    begin: float
    end: float

    def window(self, begin: float, end: float) -> Scene:
        return Scene(
            tuple(bar for bar in self.bars if bar.end > begin and bar.begin < end),
            tuple(c for c in self.compactions if c[1] > begin and c[0] < end),
            begin,
            end,
        )


def scene(entries: Sequence[Entry], compactions: Sequence[Compaction]) -> Scene:
    start = min(entry.begin for entry in entries)
    bars = tuple(
        Bar(_lane(entry), entry.begin - start, entry.end - start, entry.what, bool(crossed(entry, compactions)))
        for entry in entries
    )
    return Scene(
        bars,
        tuple((c.begin - start, c.end - start) for c in compactions if c.begin > start),
        0.0,
        max(bar.end for bar in bars),
    )


def _lane(entry: Entry) -> str:
    return "late" if entry.what.startswith("late-") else entry.process


def closeup(entries: Sequence[Entry], compactions: Sequence[Compaction]) -> Scene:
    whole = scene(entries, compactions)
    candidates = [slow for slow, _ in overtakings(entries)] or entries

    def telling(entry: Entry) -> tuple[int, bool, float]:
        met = {other.process for other in entries if other.overlaps(entry)}
        return len(met), bool(crossed(entry, compactions)), entry.begin - entry.end

    slow = max(candidates, key=telling)
    start = min(entry.begin for entry in entries)
    margin = max(0.2, 0.25 * (slow.end - slow.begin))
    return whole.window(max(0.0, slow.begin - start - margin), min(whole.end, slow.end - start + margin))


def draw(shown: Scene, columns: int) -> Text:
    width = max(20, columns - NAME_COLUMNS)
    text = Text()
    barriers = {_at(shown, begin, width) for begin, _ in shown.compactions if shown.begin <= begin}
    for lane in ("ingest", "late", "encrypt", "backfill"):
        text.append(f"{lane:<{NAME_COLUMNS}}", style="bold")
        cells = ["┊" if i in barriers else " " for i in range(width)]
        for bar in shown.bars:
            if bar.lane == lane:
                _fill(cells, _at(shown, bar.begin, width), _at(shown, bar.end, width), "╺━╸■")
        _append(text, cells, COLOURS[lane])
    text.append(f"{'compact':<{NAME_COLUMNS}}", style="bold")
    cells = [" "] * width
    for begin, end in shown.compactions:
        _fill(cells, _at(shown, begin, width), _at(shown, end, width), "▲╌╸▲")
    _append(text, cells, COLOURS["compact"])
    marks = f"{shown.begin:.1f} s", f"{shown.end:.1f} s"
    text.append(" " * NAME_COLUMNS + marks[0] + marks[1].rjust(width - len(marks[0])), style="dim")
    return text


def _at(shown: Scene, moment: float, width: int) -> int:
    share = (moment - shown.begin) / max(0.001, shown.end - shown.begin)
    return min(width - 1, max(0, int(share * width)))


def _fill(cells: list[str], begin: int, end: int, glyphs: str) -> None:
    head, body, tail, only = list(glyphs)
    if begin == end:
        cells[begin] = only
        return
    cells[begin : end + 1] = [head, *[body] * (end - begin - 1), tail]


def _append(text: Text, cells: Sequence[str], colour: str) -> None:
    for glyph in cells:
        text.append(glyph, style="bright_black" if glyph in "┊▲╌" else colour)
    text.append("\n")
