"""The overlapping transactions as SVG: the whole run, and some seconds of it enlarged.

A bar reaches from requested to completed. A dashed line is a compaction's barrier.
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
LEGEND = "bar: from requested to completed  ·  dashed: a compaction's barrier  ·  edged: open across a compaction"
STYLE = """\
<style>
.ground{fill:#fff} .ink{fill:#24292f} .faint{fill:#6e7781} .shade{fill:#f3ead2} .near{fill:#fbf7ec}
.lane{stroke:#d8dee4} .edge{stroke:#24292f;stroke-width:1.4}
.line{stroke:#8c959f} .barrier{stroke:#8c959f;stroke-dasharray:3 3}
.compaction{fill:#8c959f} .label{fill:#fff}
@media (prefers-color-scheme:dark){
.ground{fill:#0d1117} .ink{fill:#e6edf3} .faint{fill:#9198a1} .shade{fill:#3a331f} .near{fill:#1d1b14}
.lane{stroke:#30363d} .edge{stroke:#e6edf3}}
</style>"""
_DAY = re.compile(r"\d{4}-\d\d-\d\d")


def svg(title: str, subtitle: str, whole: Scene, near: Scene) -> str:
    first, second = 96, 96 + panel_height() + 78
    height = second + panel_height() + 66
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}"',
        f'font-family="{FONTS}">',
        STYLE,
        f'<rect class="ground" width="{WIDTH}" height="{height}" rx="8"/>',
        _text(24, 38, title, size=21, weight=600),
        _text(24, 62, subtitle, kind="faint"),
        *_focus(whole, near, first, second),
        *_panel(whole, first, months=True),
        *_panel(near, second, months=False),
        _text(24, height - 18, LEGEND, kind="faint"),
        "</svg>",
    ]
    return "\n".join(parts) + "\n"


def _focus(whole: Scene, near: Scene, first: int, second: int) -> Iterator[str]:
    begin, end = _x(whole, near.begin), max(_x(whole, near.begin) + 2, _x(whole, near.end))
    tall, right = panel_height(), WIDTH - RIGHT
    yield f'<rect class="shade" x="{begin:.1f}" y="{first - 6}" width="{end - begin:.1f}" height="{tall + 6}"/>'
    corners = f"M{begin:.1f} {first + tall} L{LEFT} {second - 10} L{right} {second - 10} L{end:.1f} {first + tall} Z"
    yield f'<path class="shade" d="{corners}" opacity="0.5"/>'
    yield f'<rect class="near" x="{LEFT}" y="{second - 10}" width="{right - LEFT}" height="{tall + 10}"/>'


def panel_height() -> int:
    return LANE * len(LANES) + 26


def _panel(shown: Scene, top: int, months: bool) -> Iterator[str]:
    bottom = top + LANE * len(LANES)
    for row, (label, colour) in enumerate(LANES.values()):
        middle = top + row * LANE + LANE // 2
        yield _text(24, middle + 5, label, weight=600, colour=colour)
        yield f'<line class="lane" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{middle}" y2="{middle}"/>'
    yield _text(24, bottom + 18, "compact", weight=600, kind="faint")
    for begin, end in shown.compactions:
        x, until = _x(shown, begin), _x(shown, end)
        if begin >= shown.begin:
            place = f'x1="{x:.1f}" x2="{x:.1f}" y1="{top}" y2="{bottom + 20}"'
            yield f'<line class="barrier" {place}/>'
        place = f'x="{x:.1f}" y="{bottom + 8}" width="{max(1.5, until - x):.1f}" height="10"'
        yield f'<rect class="compaction" {place} rx="2"/>'
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
    edge = ' class="edge"' if bar.crosses and width > 4 else ""
    label = _DAY.sub(lambda day: f"{date.fromisoformat(day[0]):%-d %b}", bar.label.removeprefix("late-")).replace(
        "-", " "
    )
    text = _text(x + 5, y + 14, label, kind="label", size=11) if width > 7 * len(label) + 8 else ""
    tip = escape(f"{bar.label}: {bar.begin:.2f} s to {bar.end:.2f} s")
    place = f'x="{x:.1f}" y="{y}" width="{width:.1f}" height="{BAR}" rx="2.5"'
    return f'<rect {place} fill="{LANES[bar.lane][1]}" fill-opacity="0.88"{edge}><title>{tip}</title></rect>{text}'


def _months(shown: Scene, top: int) -> Iterator[str]:
    for bar in shown.bars:
        if bar.lane == "ingest" and bar.label.endswith("-01"):
            month = date.fromisoformat(bar.label)
            yield _text(_x(shown, bar.begin), top - 1, f"{month:%b}", kind="faint", size=11)


def _axis(shown: Scene, y: int) -> Iterator[str]:
    span = shown.end - shown.begin
    step = next((s for s in (0.1, 0.2, 0.5, 1, 2, 5, 10, 20) if span / s <= 14), 60)
    mark = -(-shown.begin // step) * step
    while mark <= shown.end:
        x = _x(shown, mark)
        yield f'<line class="line" x1="{x:.1f}" x2="{x:.1f}" y1="{y}" y2="{y + 5}"/>'
        yield _text(x - 8, y + 19, f"{mark:g} s" if step >= 1 else f"{mark:.1f} s", kind="faint", size=11)
        mark += step


def _x(shown: Scene, moment: float) -> float:
    share = (min(shown.end, max(shown.begin, moment)) - shown.begin) / max(0.001, shown.end - shown.begin)
    return LEFT + share * (WIDTH - LEFT - RIGHT)


def _text(
    x: float, y: float, text: str, *, size: int = 13, weight: int = 400, kind: str = "ink", colour: str = ""
) -> str:
    paint = f'fill="{colour}"' if colour else f'class="{kind}"'
    return f'<text x="{x:.1f}" y="{y:.1f}" font-size="{size}" font-weight="{weight}" {paint}>{escape(text)}</text>'
