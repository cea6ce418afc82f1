"""Pictures in SVG: a partition tree, in which width is rows, and a time line of jobs."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from sleeper.clock import iso_time
from sleeper.reports.html.markup import Markup, element
from sleeper.reports.output import Listing, Value
from sleeper.reports.text_table import format_bytes

_WIDTH = 1200
_LEVEL_HEIGHT = 30
_LEVELS_MAX = 12
_LABEL_WIDTH_MIN = 70
_CHARACTER_WIDTH = 7
# The smallest share of the width that a leaf gets, of that of an average leaf.
_LEAF_SHARE_MIN = 0.15
_LANE_HEIGHT = 14
_LANES_MAX = 8
_LEFT, _TOP, _GAP = 130, 28, 12
_BAR_WIDTH_MIN = 4
_MARK_WIDTH = 14
_TICKS = 8
_DAY_MS = 86_400_000
_MARKS = {"failed": "✕", "rejected": "✕", "lost": "✕", "running": "▸", "accepted": "▸"}
_OK, _OTHER = "✓", "·"
_DONE = {"committed", "finished"}


@dataclass(frozen=True, slots=True)
class _Node:
    """A partition with its sizes. `below` are its children."""

    row: dict[str, Value]
    below: list["_Node"]

    def number(self, name: str) -> float:
        value = self.row[name]
        return float(value) if isinstance(value, int | float) else 0.0


def draw_partitions(listing: Listing) -> Markup:
    """Draws the rows of `list_partition_sizes`."""
    nodes: dict[Value, _Node] = {}
    for values in listing.rows:
        row = dict(zip((c.name for c in listing.columns), values, strict=True))
        node = _Node(row, [])
        nodes[row["partition"]] = node
        parent = nodes.get(row["parent"])
        if parent is not None:
            parent.below.append(node)
    if not nodes:
        return Markup()
    top = next(iter(nodes.values()))
    least = _LEAF_SHARE_MIN * max(1.0, top.number("rows")) / max(1.0, top.number("leaves"))
    densest = max(n.number("rows") / max(1.0, n.number("leaves")) for n in nodes.values())
    shapes: list[Markup] = []
    waiting = [(top, 0, 0.0, float(_WIDTH))]
    height = _LEVEL_HEIGHT
    while waiting:
        node, level, left, width = waiting.pop()
        shapes.append(_draw_node(node, level, left, width, densest or 1.0))
        height = max(height, (level + 1) * _LEVEL_HEIGHT)
        weights = [n.number("rows") + least * n.number("leaves") for n in node.below]
        for child, weight in zip(node.below, weights, strict=True):
            share = width * weight / (sum(weights) or 1.0)
            if level + 1 < _LEVELS_MAX:
                waiting.append((child, level + 1, left, share))
            left += share
    label = f"{listing.summary}; the table below has the same numbers"
    return _picture(height, label, shapes)


def _draw_node(node: _Node, level: int, left: float, width: float, densest: float) -> Markup:
    rows, top = node.number("rows"), level * _LEVEL_HEIGHT
    density = rows / max(1.0, node.number("leaves")) / densest
    is_leaf = bool(node.row["leaf"])
    text = f"{rows:,.0f} rows"
    title = f"{node.row['partition']}: {text}, {format_bytes(node.number('bytes'))}"
    box = element(
        "rect",
        {
            "x": round(left + 0.75, 2),
            "y": top + 1,
            "width": round(max(0.5, width - 1.5), 2),
            "height": _LEVEL_HEIGHT - 2,
            "rx": 3,
            "class": "leaf" if is_leaf else "inner",
            "fill-opacity": round(0.12 + 0.45 * density, 2) if is_leaf else None,
        },
    )
    fits = width >= max(_LABEL_WIDTH_MIN, len(text) * _CHARACTER_WIDTH + 16)
    point: dict[str, str | float | None] = {"x": round(left + 9, 2), "y": top + 19}
    label = element("text", point, text) if fits else Markup()
    return element("g", None, element("title", None, title), box, label)


@dataclass(frozen=True, slots=True)
class _Bar:
    """A job on the time line; `end_ms` is None while it runs."""

    kind: str
    title: str
    state: str
    start_ms: int
    end_ms: int | None


def draw_time_line(listings: Iterable[Listing], now_ms: int) -> Markup:
    """Draws the jobs of listings, a row for each; empty if none has started."""
    groups = [bars for listing in listings if (bars := _read_bars(listing))]
    if not groups:
        return Markup()
    start_ms = min(bar.start_ms for bars in groups for bar in bars)
    end_ms = max(now_ms if bar.end_ms is None else bar.end_ms for bars in groups for bar in bars)
    end_ms = max(end_ms, start_ms + 1000)
    room = _WIDTH - _LEFT - _BAR_WIDTH_MIN

    def scale(ms: int) -> float:
        return _LEFT + room * (ms - start_ms) / (end_ms - start_ms)

    shapes: list[Markup] = []
    top = _TOP
    for bars in groups:
        lanes = _assign_lanes([(scale(b.start_ms), scale(b.end_ms or now_ms)) for b in bars])
        height = min(_LANES_MAX, max(lanes) + 1) * _LANE_HEIGHT
        back: dict[str, str | float | None] = {
            "class": "row",
            "x": _LEFT,
            "y": top - 3,
            "width": _WIDTH - _LEFT,
            "height": height + 4,
            "rx": 4,
        }
        label: dict[str, str | float | None] = {"x": _LEFT - 12, "y": top + 10, "class": "kind"}
        shapes += [element("rect", back), element("text", label, bars[0].kind)]
        for bar, lane in zip(bars, lanes, strict=True):
            y = top + lane % _LANES_MAX * _LANE_HEIGHT
            shapes.append(_draw_bar(bar, scale(bar.start_ms), scale(bar.end_ms or now_ms), y))
        top += height + _GAP
    for number in range(_TICKS):
        ms = start_ms + (end_ms - start_ms) * (2 * number + 1) // (2 * _TICKS)
        point: dict[str, str | float | None] = {"x": round(scale(ms), 1), "y": 14, "class": "tick"}
        shapes.append(element("text", point, _tick_text(ms, end_ms - start_ms)))
    jobs = sum(map(len, groups))
    return _picture(top, f"Time line of {jobs:,} jobs; the tables below have the same jobs", shapes)


def _tick_text(ms: int, span_ms: int) -> str:
    text = iso_time(ms)
    if span_ms > _DAY_MS:
        return text[5:16].replace("T", " ")
    return text[11:16] if span_ms > _DAY_MS // 48 else text[11:19]


def _read_bars(listing: Listing) -> list[_Bar]:
    bars = []
    for values in listing.rows:
        row = dict(zip((c.name for c in listing.columns), values, strict=True))
        start, seconds, state = row["started"], row["seconds"], str(row["state"])
        if not isinstance(start, int):
            continue
        end = start + int(1000 * seconds) if isinstance(seconds, int | float) else None
        if end is None and _mark(state) != "▸":
            end = start
        title = f"{row['job']}\n{row['table']}: {state}\n{iso_time(start)[:19]}"
        kind = listing.name.removesuffix("-jobs").replace("-", " ").capitalize()
        bars.append(_Bar(kind, title, state, start, end))
    return sorted(bars, key=lambda bar: bar.start_ms)


def _assign_lanes(spans: Sequence[tuple[float, float]]) -> list[int]:
    """Returns the lane of each bar, so that no two that run at once overlap."""
    ends: list[float] = []
    lanes = []
    for left, right in spans:
        lane = next((number for number, end in enumerate(ends) if end <= left), len(ends))
        end = max(right, left + _MARK_WIDTH) + 2
        ends[lane : lane + 1] = [end]
        lanes.append(lane)
    return lanes


def _draw_bar(bar: _Bar, left: float, right: float, top: float) -> Markup:
    mark, width = _mark(bar.state), max(_BAR_WIDTH_MIN, right - left)
    kind = {"✕": "bad", "▸": "busy", "✓": "good"}.get(mark, "other")
    box = element(
        "rect",
        {
            "x": round(left, 1),
            "y": top,
            "width": round(width, 1),
            "height": _LANE_HEIGHT - 3,
            "rx": 0 if kind == "bad" else 3,
        },
    )
    is_inside = width >= _MARK_WIDTH
    point: dict[str, str | float | None] = {
        "x": round(left + 3 if is_inside else left + width + 2, 1),
        "y": top + 9,
        "class": "inside" if is_inside else "outside",
    }
    text = element("text", point, mark) if is_inside or kind != "good" else Markup()
    return element("g", {"class": kind}, element("title", None, bar.title), box, text)


def _mark(state: str) -> str:
    return _OK if state in _DONE else _MARKS.get(state, _OTHER)


def _picture(height: float, label: str, shapes: Iterable[Markup]) -> Markup:
    size: dict[str, str | float | None] = {
        "viewBox": f"0 0 {_WIDTH} {height:g}",
        "role": "img",
        "aria-label": label,
    }
    drawn = element("svg", size, *shapes)
    return element("figure", None, drawn)
