"""Curves as SVG, and sizes of entries."""

from xml.etree import ElementTree

import pytest

from simulation.scale.chart import Axis, Chart, Line, draw
from simulation.scale.entries import add_files_bytes, append_units, compaction_bytes

_SVG = "{http://www.w3.org/2000/svg}"


@pytest.mark.parametrize("logarithmic", [False, True])
def test_a_chart_has_its_curves_within_the_picture(logarithmic: bool) -> None:
    axis = Axis("n", logarithmic)
    lines = [Line("a < b", [(0, 0), (1, 5), (10, 50), (1000, 7)]), Line("limit", [(1, 9)], True)]
    root = ElementTree.fromstring(draw(Chart("c", "A chart", axis, axis, lines)))
    width, height = float(root.attrib["width"]), float(root.attrib["height"])

    curves = root.findall(f"{_SVG}polyline")
    assert len(curves) == 2
    points = [point.split(",") for point in curves[0].attrib["points"].split()]
    assert len(points) == (3 if logarithmic else 4)
    assert all(0 <= float(x) <= width and 0 <= float(y) <= height for x, y in points)
    assert "a < b" in [text.text for text in root.iter(f"{_SVG}text")]


def test_small_appends_take_four_write_units() -> None:
    assert append_units(add_files_bytes(1)) == 4
    assert append_units(compaction_bytes(12)) == 4


def test_larger_entries_take_more_until_their_body_is_an_object() -> None:
    sizes = [append_units(add_files_bytes(n)) for n in (1, 100, 1_000, 10_000)]

    assert sizes == sorted(sizes)
    assert sizes[-1] > 200
    assert append_units(1_000_000) == 4
