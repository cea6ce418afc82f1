"""Pictures of results: how far aims are reached, and everyone side by side."""

from collections.abc import Callable, Sequence
from html import escape
from math import log10

from benchmarks.result import OURS, Comparison, Figure, Result, number

_OURS, _THEIRS = "#2a7f62", "#9aa7b1"
_PANEL_WIDTH, _BAR_STEP, _TITLE_HEIGHT = 450, 20, 34
_LABEL_WIDTH, _VALUE_WIDTH = 165, 70
# Bars that differ more than so many times are drawn on a logarithmic scale.
_LINEAR_MOST = 12


def draw_aims(results: Sequence[Result]) -> str:
    """A bar for each figure with an aim: how far it is reached, 1 being just reached."""
    bars = [(f"{r.name}: {f.what}", f) for r in results for f in r.figures if f.aim is not None]
    width, label_width, step, most = 900, 430, 22, 4.0
    unit = (width - label_width - 90) / most
    height = step * (len(bars) + 2)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}"'
        ' font-family="sans-serif" font-size="12">',
        '<rect width="100%" height="100%" fill="white"/>',
    ]
    for place, (label, bar) in enumerate(bars):
        assert bar.aim is not None
        share = bar.aim.share(bar.value)
        y = step * (place + 1)
        colour = "#2a7f62" if bar.aim.is_met(bar.value) else "#c0392b"
        text = f"{number(bar.value)} {bar.unit}"
        length = min(share, most) * unit
        parts += [
            f'<text x="{label_width - 8}" y="{y + 14}" text-anchor="end">{escape(label)}</text>',
            f'<rect x="{label_width}" y="{y + 3}" width="{length:.1f}" height="{step - 6}"'
            f' fill="{colour}"/>',
            f'<text x="{label_width + length + 6:.1f}" y="{y + 14}">{escape(text)}</text>',
        ]
    x = label_width + unit
    parts += [
        f'<line x1="{x}" y1="12" x2="{x}" y2="{height - step}" stroke="black"'
        ' stroke-dasharray="3 3"/>',
        f'<text x="{x}" y="{height - 6}" text-anchor="middle">aim</text>',
        "</svg>",
    ]
    return "\n".join(parts) + "\n"


def draw_comparisons(results: Sequence[Result]) -> str:
    """Draws a panel for each job, two per row, with a bar for each engine."""
    panels = [(result.name, comparison) for result in results for comparison in result.comparisons]
    rows = [panels[start : start + 2] for start in range(0, len(panels), 2)]
    parts: list[str] = []
    y = 10
    for row in rows:
        for place, (name, entry) in enumerate(row):
            parts += _panel(name, entry, place * _PANEL_WIDTH, y)
        y += _TITLE_HEIGHT + _BAR_STEP * max(len(item.figures) for _, item in row) + 14
    head = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{2 * _PANEL_WIDTH}" height="{y}"'
        ' font-family="sans-serif" font-size="12">',
        '<rect width="100%" height="100%" fill="white"/>',
    ]
    return "\n".join([*head, *parts, "</svg>"]) + "\n"


def _panel(name: str, comparison: Comparison, x: int, y: int) -> list[str]:
    length_of, is_logarithmic = _scale([f.value for f in comparison.figures])
    better = "less" if comparison.less_is_better else "more"
    scale = ", logarithmic" if is_logarithmic else ""
    title = escape(f"{name}: {comparison.job}")
    hint = escape(f"{comparison.figures[0].unit}, {better} is better{scale}")
    parts = [
        f'<text x="{x + 10}" y="{y + 12}" font-weight="bold">{title}</text>',
        f'<text x="{x + 10}" y="{y + 26}" fill="#555" font-size="11">{hint}</text>',
    ]
    for place, figure in enumerate(comparison.figures):
        parts += _bar(figure, length_of(figure.value), x, y + _TITLE_HEIGHT + place * _BAR_STEP)
    return parts


def _bar(figure: Figure, length: float, x: int, y: int) -> list[str]:
    start = x + _LABEL_WIDTH
    colour = _OURS if figure.what == OURS else _THEIRS
    return [
        f'<text x="{start - 8}" y="{y + 13}" text-anchor="end">{escape(figure.what)}</text>',
        f'<rect x="{start}" y="{y + 3}" width="{length:.1f}" height="{_BAR_STEP - 6}"'
        f' fill="{colour}"/>',
        f'<text x="{start + length + 6:.1f}" y="{y + 13}">{number(figure.value)}</text>',
    ]


def _scale(values: Sequence[float]) -> tuple[Callable[[float], float], bool]:
    """How long each value's bar is, and whether that is by its logarithm."""
    width = _PANEL_WIDTH - _LABEL_WIDTH - _VALUE_WIDTH
    most, least = max(values), max(min(values), 1e-9)
    if most / least <= _LINEAR_MOST:
        return lambda value: value / most * width, False
    # The shortest bar is to be seen too: it ends half a decade from the edge.
    low = log10(least) - 0.5
    return lambda value: (log10(max(value, least)) - low) / (log10(most) - low) * width, True
