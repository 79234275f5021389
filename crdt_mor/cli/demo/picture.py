"""The overlapping transactions as an SVG file, written by hand: the whole run, and a few seconds of it from near.

A bar reaches from requested to completed. A dashed line is a compaction's barrier; a bar with a dark edge was open from
before a compaction to after it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import date
from html import escape

from crdt_mor.cli.demo.lanes import Bar, Scene

WIDTH = 1200
LEFT = 132
RIGHT = 30
LANE = 34
BAR = 20
LANES = {
    "ingest": ("ingest", "#3b82c4"),
    "late": ("late delivery", "#b4489e"),
    "encrypt": ("encrypt", "#e0972f"),
    "backfill": ("backfill", "#3d9a68"),
}
FONTS = "system-ui, -apple-system, Segoe UI, Helvetica, Arial, DejaVu Sans, sans-serif"
LEGEND = "bar: from requested to completed  ·  dashed: a compaction's barrier  ·  dark edge: open across a compaction"
_DAY = re.compile(r"\d{4}-\d\d-\d\d")
INK, FAINT, LINE = "#24292f", "#6e7781", "#8c959f"


def svg(title: str, subtitle: str, whole: Scene, near: Scene) -> str:
    """The picture."""
    first, second = 96, 96 + panel_height() + 78
    height = second + panel_height() + 66
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}"',
        f'font-family="{FONTS}">',
        f'<rect width="{WIDTH}" height="{height}" fill="#ffffff"/>',
        _text(24, 38, title, size=21, weight=600),
        _text(24, 62, subtitle, colour=FAINT),
        *_focus(whole, near, first, second),
        *_panel(whole, first, months=True),
        *_panel(near, second, months=False),
        _text(24, height - 18, LEGEND, colour=FAINT),
        "</svg>",
    ]
    return "\n".join(parts) + "\n"


def _focus(whole: Scene, near: Scene, first: int, second: int) -> Iterator[str]:
    """What is shown from near, as a shade that widens to the lower panel."""
    begin, end = _x(whole, near.begin), max(_x(whole, near.begin) + 2, _x(whole, near.end))
    tall, right = panel_height(), WIDTH - RIGHT
    yield f'<rect x="{begin:.1f}" y="{first - 6}" width="{end - begin:.1f}" height="{tall + 6}" fill="#f3ead2"/>'
    corners = f"M{begin:.1f} {first + tall} L{LEFT} {second - 10} L{right} {second - 10} L{end:.1f} {first + tall} Z"
    yield f'<path d="{corners}" fill="#f3ead2" opacity="0.5"/>'
    yield f'<rect x="{LEFT}" y="{second - 10}" width="{right - LEFT}" height="{tall + 10}" fill="#fbf7ec"/>'


def panel_height() -> int:
    """Lanes, and the strip of compactions below them."""
    return LANE * len(LANES) + 26


def _panel(shown: Scene, top: int, months: bool) -> Iterator[str]:
    bottom = top + LANE * len(LANES)
    for row, (label, colour) in enumerate(LANES.values()):
        middle = top + row * LANE + LANE // 2
        yield _text(24, middle + 5, label, weight=600, colour=colour)
        yield f'<line x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{middle}" y2="{middle}" stroke="#d8dee4"/>'
    yield _text(24, bottom + 18, "compact", weight=600, colour=FAINT)
    for begin, end in shown.compactions:
        x, until = _x(shown, begin), _x(shown, end)
        if begin >= shown.begin:
            place = f'x1="{x:.1f}" x2="{x:.1f}" y1="{top}" y2="{bottom + 20}"'
            yield f'<line {place} stroke="{LINE}" stroke-dasharray="3 3"/>'
        yield f'<rect x="{x:.1f}" y="{bottom + 8}" width="{max(1.5, until - x):.1f}" height="10" rx="2" fill="{LINE}"/>'
    for bar in shown.bars:
        yield _bar(shown, bar, top)
    if months:
        yield from _months(shown, top)
    yield from _axis(shown, bottom + 26)


def _bar(shown: Scene, bar: Bar, top: int) -> str:
    row = list(LANES).index(bar.lane)
    x, until = _x(shown, bar.begin), _x(shown, bar.end)
    width = max(1.2, until - x - 0.6)
    y = top + row * LANE + (LANE - BAR) // 2
    edge = f' stroke="{INK}" stroke-width="1.4"' if bar.crosses and width > 4 else ""
    label = _DAY.sub(lambda day: f"{date.fromisoformat(day[0]):%-d %b}", bar.what.removeprefix("late-")).replace(
        "-", " "
    )
    text = _text(x + 5, y + 14, label, colour="#ffffff", size=11) if width > 7 * len(label) + 8 else ""
    tip = escape(f"{bar.what}: {bar.begin:.2f} s to {bar.end:.2f} s")
    place = f'x="{x:.1f}" y="{y}" width="{width:.1f}" height="{BAR}" rx="2.5"'
    return f'<rect {place} fill="{LANES[bar.lane][1]}" fill-opacity="0.88"{edge}><title>{tip}</title></rect>{text}'


def _months(shown: Scene, top: int) -> Iterator[str]:
    """Where ingest began a month."""
    for bar in shown.bars:
        if bar.lane == "ingest" and bar.what.endswith("-01"):
            month = date.fromisoformat(bar.what)
            yield _text(_x(shown, bar.begin), top - 1, f"{month:%b}", colour=FAINT, size=11)


def _axis(shown: Scene, y: int) -> Iterator[str]:
    span = shown.end - shown.begin
    step = next((s for s in (0.1, 0.2, 0.5, 1, 2, 5, 10, 20) if span / s <= 14), 60)
    mark = -(-shown.begin // step) * step
    while mark <= shown.end:
        x = _x(shown, mark)
        yield f'<line x1="{x:.1f}" x2="{x:.1f}" y1="{y}" y2="{y + 5}" stroke="{LINE}"/>'
        yield _text(x - 8, y + 19, f"{mark:g} s" if step >= 1 else f"{mark:.1f} s", colour=FAINT, size=11)
        mark += step


def _x(shown: Scene, moment: float) -> float:
    share = (min(shown.end, max(shown.begin, moment)) - shown.begin) / max(0.001, shown.end - shown.begin)
    return LEFT + share * (WIDTH - LEFT - RIGHT)


def _text(x: float, y: float, text: str, *, size: int = 13, weight: int = 400, colour: str = INK) -> str:
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" font-size="{size}" font-weight="{weight}" fill="{colour}">{escape(text)}</text>'
    )
