"""The results as a table and as plots."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

Found = dict[str, Any]

KINDS = {
    "snapshot": "Snapshot reads. Times of ours and of the floor; how many times as fast as the others we are",
    "write": "Writes. Our rate as a share of that of polars",
    "compaction": "Compaction. The floor reads and writes the same bytes",
    "memory": "Peak memory above the imports, MiB",
}
NONE = "–"
NO_BARS = "No bars are judged. A small run keeps the names of the full sizes, and says nothing of speed."


def text(found: Found) -> str:
    """A Markdown table for each kind of case."""
    cpu = found.get("machine_info", {}).get("cpu", {})
    lines = ["# Results", "", f"{cpu.get('brand_raw', 'unknown processor')}, {cpu.get('count', '?')} cores.", ""]
    for kind, title in KINDS.items():
        cases = _cases(found, kind)
        if cases:
            rows = [_line(kind, case) for case in cases]
            lines += [f"## {title}", "", *_table(rows), ""]
    bars = [bar for case in _every(found) for bar in case["bars"]]
    kept = f"{sum(bar['met'] for bar in bars)} of {len(bars)} bars are kept."
    lines.append(kept if bars else NO_BARS)
    return "\n".join(lines) + "\n"


def _every(found: Found) -> list[Found]:
    return [bench["extra_info"] for bench in found["benchmarks"] if "kind" in bench["extra_info"]]


def _cases(found: Found, kind: str) -> list[Found]:
    return [case for case in _every(found) if case["kind"] == kind]


def _line(kind: str, case: Found) -> dict[str, str]:
    if kind == "memory":
        line = {"case": case["case"], **{name: f"{mib:,.0f}" for name, mib in case["mib"].items()}}
        return {**line, **_bars(case)}
    seconds, ratios = case["seconds"], case["ratios"]
    line = {"case": case["case"], "ours ms": f"{1000 * seconds['ours']:,.0f}"}
    if kind == "write":
        line |= {name: f"{ratio:.2f}" for name, ratio in ratios.items()}
    else:
        line |= {"floor ms": f"{1000 * seconds['floor']:,.0f}", "× floor": f"{ratios['floor']:.2f}"}
    if kind == "snapshot":
        line |= {name: _times(ratios.get(name)) for name in ("hudi-rs", "DuckDB", "polars, obvious")}
    line["rows/s"] = f"{case['rows'] / seconds['ours'] / 1e6:.2f} M"
    return {**line, **_bars(case)}


def _times(ratio: float | None) -> str:
    return NONE if ratio is None else f"{ratio:.1f} ×"


def _bars(case: Found) -> dict[str, str]:
    parts = [f"{b['of']} {b['found']:.2f} {b['bar']} {'yes' if b['met'] else '**no**'}" for b in case["bars"]]
    return {"bars": "; ".join(parts) or NONE}


def _table(rows: Sequence[dict[str, str]]) -> list[str]:
    names = list(rows[0])
    widths = {name: max(len(name), *(len(row[name]) for row in rows)) for name in names}

    def line(cells: dict[str, str]) -> str:
        left = ("case", "bars")
        padded = [cells[n].ljust(widths[n]) if n in left else cells[n].rjust(widths[n]) for n in names]
        return f"| {' | '.join(padded)} |"

    rule = {name: "-" * widths[name] for name in names}
    return [line({name: name for name in names}), line(rule), *map(line, rows)]


def plots(found: Found, folder: Path) -> str:
    """Draw what there is to draw; says what was drawn."""
    try:
        import matplotlib as mpl
    except ImportError:
        return "No plots: matplotlib is not installed."
    mpl.use("svg")
    drawn = []
    timed = [case for case in _every(found) if "floor" in case.get("ratios", {})]
    if timed:
        drawn.append(_ratios(timed, folder / "ratios.svg"))
    if memory := _cases(found, "memory"):
        drawn.append(_memory(memory, folder / "memory.svg"))
    return f"Plots: {', '.join(drawn)}" if drawn else "Nothing to plot."


def _ratios(cases: list[Found], path: Path) -> str:
    """Ours by the floor, and beside it the bar where there is one."""
    from matplotlib import pyplot as plt

    figure, axes = plt.subplots(figsize=(9, 1 + 0.28 * len(cases)), layout="constrained")
    for row, case in enumerate(cases):
        bar = next((b for b in case["bars"] if b["of"] == "floor"), None)
        color = "tab:gray" if bar is None else "tab:green" if bar["met"] else "tab:red"
        axes.barh(row, case["ratios"]["floor"], color=color)
        if bar is not None:
            limit = float(bar["bar"].split()[1])
            axes.plot([limit, limit], [row - 0.45, row + 0.45], color="black", linewidth=2)
    axes.set_yticks(range(len(cases)), [case["case"] for case in cases], fontsize=8)
    axes.invert_yaxis()
    axes.axvline(1, color="black", linewidth=0.5)
    axes.set_xlabel("multiples of the floor; the black marks are the bars")
    figure.savefig(path)
    plt.close(figure)
    return str(path)


def _memory(cases: list[Found], path: Path) -> str:
    """Peaks side by side, and the sizes of result and largest slice."""
    from matplotlib import pyplot as plt

    names = list(cases[0]["mib"])
    figure, axes = plt.subplots(figsize=(9, 1 + 0.9 * len(cases)), layout="constrained")
    for index, name in enumerate(names):
        places = [row + 0.13 * (index - len(names) / 2) for row in range(len(cases))]
        axes.barh(places, [case["mib"][name] for case in cases], height=0.12, label=name)
    axes.set_yticks(range(len(cases)), [case["case"] for case in cases], fontsize=8)
    axes.invert_yaxis()
    axes.set_xlabel("MiB")
    axes.legend(fontsize=8)
    figure.savefig(path)
    plt.close(figure)
    return str(path)
