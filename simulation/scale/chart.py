"""Curves as SVG."""

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from math import ceil, floor, log10

_COLOURS = ("#2a7f62", "#c0392b", "#2c6fbb", "#b8860b", "#7d5ba6", "#555555")
_WIDTH, _HEIGHT = 620, 300
_LEFT, _RIGHT, _TOP, _BOTTOM = 70, 190, 34, 44

Point = tuple[float, float]


@dataclass(frozen=True, slots=True)
class Line:
    """A curve. A `limit` is dashed."""

    name: str
    points: Sequence[Point]
    limit: bool = False


@dataclass(frozen=True, slots=True)
class Axis:
    """An axis with its label and unit, linear or logarithmic."""

    label: str
    logarithmic: bool = False

    def scaled(self, value: float) -> float:
        """Returns the value on the scale."""
        return log10(value) if self.logarithmic else value


@dataclass(frozen=True, slots=True)
class Chart:
    """A picture. `name` is that of its file."""

    name: str
    title: str
    x: Axis
    y: Axis
    lines: Sequence[Line]


def draw(chart: Chart) -> str:
    """Returns the picture of a chart. Points of 0 or less are not on a logarithmic axis."""
    lines = [(line, _shown(chart, line.points)) for line in chart.lines]
    points = [point for _, each in lines for point in each]
    x_low, x_high = _bounds(chart.x, [x for x, _ in points])
    y_low, y_high = _bounds(chart.y, [y for _, y in points])
    x_unit = (_WIDTH - _LEFT - _RIGHT) / (x_high - x_low)
    y_unit = (_HEIGHT - _TOP - _BOTTOM) / (y_high - y_low)

    def position(point: Point) -> Point:
        x, y = chart.x.scaled(point[0]), chart.y.scaled(point[1])
        return _LEFT + (x - x_low) * x_unit, _HEIGHT - _BOTTOM - (y - y_low) * y_unit

    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{_WIDTH}" height="{_HEIGHT}"'
        ' font-family="sans-serif" font-size="11">',
        '<rect width="100%" height="100%" fill="white"/>',
        f'<text x="{_LEFT}" y="18" font-size="13" font-weight="bold">{escape(chart.title)}</text>',
        _text((_LEFT + _WIDTH - _RIGHT) / 2, _HEIGHT - 8, chart.x.label, "middle"),
        f'<text x="14" y="{(_TOP + _HEIGHT - _BOTTOM) / 2:.0f}" text-anchor="middle"'
        f' transform="rotate(-90 14 {(_TOP + _HEIGHT - _BOTTOM) / 2:.0f})">'
        f"{escape(chart.y.label)}</text>",
    ]
    for tick in _ticks(chart.y, y_low, y_high):
        _, y = position((_least(chart.x, x_low), tick))
        parts.append(f'<path d="M{_LEFT} {y:.1f}H{_WIDTH - _RIGHT}" stroke="#ddd"/>')
        parts.append(_text(_LEFT - 6, y + 4, _number(tick), "end"))
    for tick in _ticks(chart.x, x_low, x_high):
        x, _ = position((tick, _least(chart.y, y_low)))
        parts.append(_text(x, _HEIGHT - _BOTTOM + 16, _number(tick), "middle"))
    for number, (line, shown) in enumerate(lines):
        parts += _curve(line, [position(point) for point in shown], number)
    return "\n".join([*parts, "</svg>"]) + "\n"


def _curve(line: Line, points: Sequence[Point], number: int) -> list[str]:
    colour = _COLOURS[number % len(_COLOURS)]
    dashes = ' stroke-dasharray="5 4"' if line.limit else ""
    path = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
    y = _TOP + 14 + 17 * number
    x = _WIDTH - _RIGHT + 12
    return [
        f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2"{dashes}/>',
        f'<path d="M{x} {y - 4}h18" stroke="{colour}" stroke-width="2"{dashes}/>',
        _text(x + 24, y, line.name, "start"),
    ]


def _shown(chart: Chart, points: Sequence[Point]) -> list[Point]:
    return [
        (x, y)
        for x, y in points
        if (x > 0 or not chart.x.logarithmic) and (y > 0 or not chart.y.logarithmic)
    ]


def _bounds(axis: Axis, values: Sequence[float]) -> Point:
    if not axis.logarithmic:
        return 0.0, max(values, default=1.0) * 1.05 or 1.0
    scaled = [axis.scaled(value) for value in values] or [0.0]
    low, high = floor(min(scaled)), ceil(max(scaled))
    return float(low), float(max(high, low + 1))


def _least(axis: Axis, low: float) -> float:
    return 10**low if axis.logarithmic else low


def _ticks(axis: Axis, low: float, high: float) -> list[float]:
    if axis.logarithmic:
        return [10.0**power for power in range(int(low), int(high) + 1)]
    step = 10.0 ** floor(log10(high - low))
    for part in (1, 2, 5, 10):
        if (high - low) * part / step >= 4:
            step /= part
            break
    return [low + step * number for number in range(int((high - low) / step) + 1)]


def _text(x: float, y: float, text: str, anchor: str) -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escape(text)}</text>'


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 10 or value == int(value) else f"{value:g}"
