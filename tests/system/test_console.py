"""The console of `sleeper serve` in a real browser.

With APPROVE=1, the tests write the pictures of docs/console.md.
"""

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pyarrow.parquet as pq
import pytest

from sleeper.local.instance import create_local_instance, open_local_instance
from sleeper.serve.service import ServerLimits
from tests.servers.serving import Serving, serving
from tests.system.browser import BROWSER, Page, open_browser
from tests.system.console_instance import TRIPS, console_instance

pytestmark = pytest.mark.skipif(
    BROWSER is None, reason="there is no chromium; `make test` installs it"
)
TOKEN = "a-token-of-some-length"
_IMAGES = Path(__file__).parents[2] / "docs" / "images"
_WIDTHS = (390, 800, 1600)
_BY_ZONE = (
    "SELECT zone, avg(fare) AS fare, count(*) AS trips\nFROM trips\nWHERE distance > 2\n"
    "GROUP BY zone\nORDER BY fare DESC"
)
_NARROW, _WIDE = (390, 780), (1080, 660)
_PLACES = {
    "tables": "tables",
    "table": "tables/trips",
    "rows": "tables/trips/rows",
    "partitions": "tables/trips/partitions",
    "files": "tables/trips/files",
    "history": "tables/trips/history",
    "followers": "tables/trips/followers",
    "empty": "tables/not%20yet%20used/files",
    "query": f"query?sql={quote(_BY_ZONE)}",
    "jobs": "jobs",
    "queues": "queues",
}
# What each view shows when its data has arrived.
_CONTENT = {
    "tables": "6,144",
    "table": "list<string>",
    "rows": "100 rows in",
    "partitions": "31 partitions, 16 leaves",
    "files": "3 files, oldest first",
    "history": "ingest",
    "followers": "warehouse",
    "empty": "sleeper ingest 'not yet used' rows.csv",
    "query": "Explain",
    "jobs": "column 'fare' has type string",
    "queues": "sleeper dead-letters redrive ingest",
}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Serving]:
    folder = tmp_path_factory.mktemp("console") / "instance"
    limits = ServerLimits(queries_max=1, waiting_max=8)
    with console_instance(folder) as instance, serving(instance, limits) as run:
        yield run


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Page]:
    with open_browser(tmp_path_factory.mktemp("profile")) as page:
        yield page


@pytest.fixture
def page(browser: Page) -> Iterator[Page]:
    """A page whose console must have no error at the end, such as a violation of the policy."""
    browser.open("about:blank")
    browser.errors.clear()
    browser.resize(*_WIDE)
    browser.prefer("light")
    yield browser
    assert browser.errors == []


def go(page: Page, server: Serving, place: str, content: str) -> None:
    page.open("about:blank")
    page.open(f"{server.url}/#/{place}")
    page.wait_until("document.querySelector('main h1')")
    page.wait_for_text(content)


def press_button(page: Page, text: str) -> None:
    buttons = "[...document.querySelectorAll('button')]"
    page.run(f"{buttons}.find(b => b.textContent.startsWith({json.dumps(text)})).click()")


def focused(page: Page) -> str:
    return str(page.run("document.activeElement.textContent || document.activeElement.id"))


def result_rows(page: Page) -> list[list[str]]:
    cells = (
        "[...document.querySelectorAll('.result tr')].map(r => [...r.cells].map(c => c.innerText))"
    )
    rows: list[list[str]] = page.run(cells)
    return rows


def save_picture(page: Page, name: str) -> None:
    if os.environ.get("APPROVE") == "1":
        _IMAGES.mkdir(exist_ok=True)
        (_IMAGES / f"console-{name}.png").write_bytes(page.screenshot())
    assert (_IMAGES / f"console-{name}.png").stat().st_size < 100_000


# Chromium says which elements a keyboard reaches, and what a screen reader calls them.
def nameless_elements(page: Page) -> list[Any]:
    page.call("Accessibility.enable")
    nodes = page.call("Accessibility.getFullAXTree")["nodes"]
    found = []
    for node in nodes:
        properties = {
            each["name"]: each["value"].get("value") for each in node.get("properties", ())
        }
        role = node.get("role", {}).get("value")
        is_document = role in ("RootWebArea", "main")
        name = node.get("name", {}).get("value", "")
        if not node["ignored"] and not is_document:
            if properties.get("focusable") and not name.strip():
                found.append((role, name))
            if role in ("table", "img", "dialog", "navigation", "image") and not name.strip():
                found.append((role, "landmark or picture without a name"))
    return found


# The contrast of each text with what is behind it; text within pictures has tests of its own.
_LOW_CONTRAST = (Path(__file__).parent / "low_contrast.js").read_text()


@pytest.mark.parametrize("view", list(_PLACES))
def test_views_fit_all_widths_and_are_accessible(page: Page, server: Serving, view: str) -> None:
    for width, colours in zip(_WIDTHS, ("dark", "light", "dark"), strict=True):
        page.resize(width, 800)
        page.prefer(colours)
        if width == _WIDTHS[0]:
            go(page, server, _PLACES[view], _CONTENT[view])
        overflow = "document.documentElement.scrollWidth - innerWidth"
        assert page.run(overflow) == 0, width
        assert page.run(_LOW_CONTRAST) == [], colours
    assert nameless_elements(page) == []


def test_the_pictures_of_the_documentation(page: Page, server: Serving) -> None:
    pictures = {"tables": "light", "table": "light", "jobs": "light", "queues": "dark"}
    for view, colours in {**pictures, "partitions": "dark"}.items():
        page.prefer(colours)
        go(page, server, _PLACES[view], _CONTENT[view])
        if view in ("jobs", "partitions"):
            page.wait_until("document.querySelector('figure svg')")
        save_picture(page, view)
    page.resize(*_NARROW)
    page.wait_until("document.querySelector('figure svg').clientWidth < 390")
    save_picture(page, "phone")


def test_keys_are_asked_for_only_in_a_table(page: Page, server: Serving) -> None:
    go(page, server, "tables", "6,144")
    assert page.run("document.querySelectorAll('form:not(#sign-in-form)').length") == 0
    go(page, server, _PLACES["rows"], "100 rows in")
    fields = "[...document.querySelectorAll('main form .field span')].map(e => e.innerText)"
    assert page.run(fields) == ["cab is", "cab from", "to (exclusive)", "Maximum rows"]
    page.run("document.querySelector('[name=key]').focus()")
    page.type("0")
    page.press("Enter")
    page.wait_until("/^\\d+ rows? in/.test(document.querySelector('.rows .about')?.innerText)")
    page.wait_until("document.querySelector('.rows .about').innerText !== '100 rows in'")
    cells = "[...document.querySelectorAll('.rows td:first-child')]"
    page.wait_until(f"{cells}.every(e => e.innerText === '0')")
    page.run("document.querySelector('[name=key]').focus()")
    page.type("x")
    page.press("Enter")
    page.wait_for_text("cab: 0x is not an integer")


def test_the_bodies_of_dead_letters_keep_all_digits(page: Page, server: Serving) -> None:
    go(page, server, "queues", _CONTENT["queues"])
    page.run("document.querySelector('.letters summary').click()")
    body = page.run("document.querySelector('.letters .body').innerText")
    numbers = "9007199254740993,\n    12345678901234567.89,\n    1.10,\n    -0,\n    1e5"
    assert f'\n  "keys": [\n    {numbers}\n  ],\n  "a": {{}},\n  "b": "{{1, \\"2\\"}}"\n' in body


def test_the_history_hides_the_upkeep(page: Page, server: Serving) -> None:
    assert server.rows("/sql", {"statement": "SELECT count(*) AS n FROM trips"}) == [{"n": TRIPS}]
    go(
        page,
        server,
        _PLACES["history"],
        "4 recorded transactions, newest first; 2 of upkeep hidden",
    )
    assert "create follower" not in page.text()
    assert page.run("document.querySelectorAll('.page tbody tr').length") == 4
    page.run("document.querySelector('.page .bar a').click()")
    page.wait_for_text("create follower")
    page.wait_for_text("6 recorded transactions, newest first")
    page.run("document.querySelector('.page .bar a').click()")
    page.wait_for_text("2 of upkeep hidden")


def test_an_empty_instance_says_what_to_do_and_does_not_scroll(page: Page, tmp_path: Path) -> None:
    create_local_instance(tmp_path / "instance", "new")
    instance = open_local_instance(tmp_path / "instance")
    try:
        with serving(instance) as server:
            for place, content in (
                ("tables", "sleeper table create"),
                ("jobs", "No job has run yet"),
                ("query", "Run one SELECT"),
            ):
                for width, height in (_NARROW, (1600, 900)):
                    page.resize(width, height)
                    go(page, server, place, content)
                    scroll = "document.documentElement.scrollHeight - innerHeight"
                    if place != "query":
                        assert page.run(scroll) <= 0, (place, width)
    finally:
        instance.close()


def test_navigation_by_keyboard(page: Page, server: Serving) -> None:
    go(page, server, "tables", "6,144")
    seen = []
    for _ in range(7):
        page.press("Tab")
        seen.append(focused(page))
        outline = "getComputedStyle(document.activeElement).outlineStyle"
        assert page.run(outline) == "solid", seen
    assert seen[:6] == ["Skip to content", "Sleeper", "Tables", "Query", "Jobs", "Queues"]
    page.press("Tab", shift=True)
    assert focused(page) == "Queues"
    page.press("Enter")
    page.wait_for_text("Dead letters")
    page.wait_until("document.activeElement.tagName === 'H1'")
    assert focused(page) == "Queues"
    assert page.run("document.title") == "Queues – Sleeper"


def test_a_query_by_keyboard_with_completion_and_chart(page: Page, server: Serving) -> None:
    go(page, server, "query?sql=", "Run one SELECT")
    page.run("document.getElementById('statement').focus()")
    page.type("SELECT zone, avg(fare) AS fare, count(*) AS trips FROM tri")
    page.wait_until("document.querySelector('#suggestions li[aria-selected=true]')")
    assert page.run("document.getElementById('statement').getAttribute('role')") == "combobox"
    page.press("Tab")
    value = "document.getElementById('statement').value"
    assert page.run(value).endswith("FROM trips")
    assert page.run("document.getElementById('suggestions').hidden")
    page.type(" WHERE dista")
    # The columns of a table are loaded when a statement names it.
    page.wait_until(
        "document.getElementById('statement').dispatchEvent(new Event('input')), "
        "document.querySelector('#suggestions:not([hidden]) li.column')"
    )
    page.press("Enter")
    page.type(" > 2 GROUP BY zone ORDER BY fare DESC")
    page.press("Escape")
    page.press("Enter", ctrl=True)
    page.wait_for_text("7 rows in")
    rows = result_rows(page)
    assert rows[0] == ["zone", "fare", "trips"]
    assert len(rows) == 8
    assert "WHERE+distance+%3E+2" in page.run("location.hash")
    assert "7 rows" in page.run("document.querySelector('.entries').innerText")
    press_button(page, "Chart")
    page.wait_until("document.querySelectorAll('svg.chart rect.series').length === 7")
    assert "zone" in page.run("document.querySelector('svg.chart').getAttribute('aria-label')")
    press_button(page, "Table")
    assert len(result_rows(page)) == 8


def test_pictures_of_queries(page: Page, server: Serving) -> None:
    page.resize(_WIDE[0], 860)
    go(page, server, _PLACES["query"], "Run one SELECT")
    press_button(page, "Run")
    page.wait_for_text("7 rows in")
    press_button(page, "Chart")
    page.wait_until("document.querySelector('svg.chart')")
    save_picture(page, "query")
    page.resize(*_WIDE)
    page.prefer("dark")
    press_button(page, "Explain")
    page.wait_for_text("Physical plan")
    assert "SortPreservingMergeExec" in page.text()
    plan = "[...document.querySelectorAll('.plan')].every(e => e.scrollWidth <= e.clientWidth)"
    assert page.run(plan), "a plan must be readable without scrolling sideways"
    save_picture(page, "explain")


def test_results_are_exact_bounded_and_text_only(page: Page, server: Serving) -> None:
    statement = "SELECT 9007199254740993 AS n, '<b>x</b>' AS t, NULL AS z"
    go(page, server, f"query?sql={quote(statement)}", "Run one SELECT")
    press_button(page, "Run")
    page.wait_for_text("1 row in")
    assert result_rows(page)[1][:2] == ["9007199254740993", "<b>x</b>"]
    assert page.run("document.querySelectorAll('.result b').length") == 0
    decimals = ("12345678901234567.89", "0.30", "-0.00000001", "100")
    columns = [f"CAST('{n}' AS DECIMAL(38, 10)) AS d{i}" for i, n in enumerate(decimals)]
    statement = f"SELECT {', '.join(columns)}, -0.0 AS zero, 0.1 + 0.2 AS sum"
    go(page, server, f"query?sql={quote(statement)}", "Run one SELECT")
    press_button(page, "Run")
    page.wait_for_text("1 row in")
    exact = ["12345678901234567.8900000000", "0.3", "-1e-8", "100"]
    assert result_rows(page)[1] == [*exact, "-0.0", "0.30000000000000004"]
    press_button(page, "Chart")
    page.wait_until("document.querySelector('svg.chart .series title')")
    small = "SELECT 'a' AS k, 0.0042 AS share"
    go(page, server, f"query?sql={quote(small)}", "Run one SELECT")
    press_button(page, "Run")
    page.wait_for_text("1 row in")
    press_button(page, "Chart")
    page.wait_until("document.querySelector('svg.chart .series title')")
    title = page.run("document.querySelector('svg.chart .series title').textContent")
    assert title == "a\nshare: 0.0042"
    go(page, server, f"query?sql={quote('SELECT cab FROM trips')}", "Run one SELECT")
    press_button(page, "Run")
    page.wait_for_text("The first 1,000+ rows")
    assert len(result_rows(page)) == 1001
    go(page, server, f"query?sql={quote('SELECT 7 AS plan_type, 8 AS plan')}", "Run one SELECT")
    press_button(page, "Run")
    page.wait_for_text("1 row in")
    assert result_rows(page) == [["plan_type", "plan"], ["7", "8"]]
    go(page, server, f"query?sql={quote('SELECT * FROM nope')}", "Run one SELECT")
    press_button(page, "Run")
    page.wait_for_text("no table 'nope'; tables are:")
    page.errors.clear()  # The status 400 of that statement.


def test_a_part_of_a_response_may_have_any_number_of_rows(page: Page, server: Serving) -> None:
    go(page, server, f"query?sql={quote('SELECT 1 AS x')}", "Run one SELECT")
    # More rows than a function of JavaScript takes arguments, as a fast server sends them.
    page.run(
        "window.fetch = async () => new Response(new ReadableStream({ start(stream) {"
        " stream.enqueue(new TextEncoder().encode('{\"x\":1}\\n'.repeat(500_000)));"
        " stream.close(); } })), null"
    )
    press_button(page, "Run")
    page.wait_for_text("The first 1,000+ rows")
    assert len(result_rows(page)) == 1001


def test_escape_cancels_the_query_on_the_server(page: Page, server: Serving) -> None:
    # It takes long, but not the memory of a product of three whole tables. A cancelled product
    # without a condition ends within a second, with one after many.
    endless = (
        "SELECT sum(a.fare * c.fare) FROM (SELECT fare FROM trips LIMIT 1000) a,"
        " (SELECT fare FROM trips LIMIT 3000) b, trips c"
    )
    go(page, server, f"query?sql={quote(endless)}", "Run one SELECT")
    page.run("document.getElementById('statement').focus()")
    page.press("Enter", ctrl=True)
    page.wait_for_text("Running for")
    page.press("Escape")
    page.wait_for_text("The server stopped the query")
    # The server has one slot, which the cancelled query must have left.
    assert server.rows("/sql", {"statement": "SELECT 1 AS one"}) == [{"one": 1}]
    page.errors.clear()  # The aborted request.


@pytest.mark.parametrize("form", ["csv", "parquet"])
def test_downloads_have_all_rows(page: Page, server: Serving, tmp_path: Path, form: str) -> None:
    page.call("Browser.setDownloadBehavior", behavior="allow", downloadPath=str(tmp_path))
    go(page, server, f"query?sql={quote('SELECT cab, tags FROM trips')}", "Run one SELECT")
    press_button(page, "Run")
    page.wait_for_text("A download has all rows")
    page.run(f"document.querySelector('.download select').value = '{form}'")
    press_button(page, "Download")
    page.wait_until("document.getElementById('announcer').innerText === 'The download is complete'")
    file = tmp_path / f"result.{form}"
    wait_for_file(page, file)
    if form == "csv":
        lines = file.read_text().splitlines()
        assert lines[0] == '"cab","tags"'
        assert len(lines) == TRIPS + 1
    else:
        assert pq.read_table(file).num_rows == TRIPS


def wait_for_file(page: Page, file: Path) -> None:
    for _ in range(200):
        if file.exists():
            return
        page.run("new Promise((done) => setTimeout(done, 50))")
    raise AssertionError(f"{file} was not downloaded")


def test_a_token_is_asked_for_and_kept_for_the_tab(page: Page, tmp_path: Path) -> None:
    create_local_instance(tmp_path / "instance", "new")
    instance = open_local_instance(tmp_path / "instance")
    dialog = "document.getElementById('sign-in')?.open"
    try:
        with serving(instance, token=TOKEN) as server:
            page.open(server.url)
            page.wait_until(dialog)
            page.wait_until("document.activeElement.id === 'token'")
            page.type("wrong-token-wrong-token")
            page.press("Enter")
            page.wait_until(dialog)
            page.wait_for_text("The server refused this token.")
            page.run("document.getElementById('token').focus()")
            page.type(TOKEN)
            page.errors.clear()  # The refused requests.
            page.press("Enter")
            page.wait_for_text("There are no tables yet")
            assert not page.run(dialog)
            assert page.run("JSON.stringify(localStorage)").count(TOKEN) == 0
            assert page.run("document.cookie") == ""
            assert page.run("sessionStorage.getItem('sleeper.token')") == TOKEN
    finally:
        instance.close()


def test_the_token_of_the_printed_url_is_taken_from_the_address(page: Page, tmp_path: Path) -> None:
    create_local_instance(tmp_path / "instance", "new")
    instance = open_local_instance(tmp_path / "instance")
    try:
        with serving(instance, token=TOKEN) as server:
            page.open(f"{server.url}/#token={TOKEN}")
            page.wait_for_text("There are no tables yet")
            assert page.run("sessionStorage.getItem('sleeper.token')") == TOKEN
            assert TOKEN not in page.run("location.href")
    finally:
        instance.close()


def test_the_theme_can_be_chosen(page: Page, server: Serving) -> None:
    go(page, server, "tables", "6,144")
    back = "getComputedStyle(document.body).backgroundColor"
    light = page.run(back)
    press_button(page, "Theme")
    press_button(page, "Theme")
    assert page.run("document.getElementById('theme').innerText") == "Theme: dark"
    assert page.run(back) != light
    press_button(page, "Theme")
    assert page.run(back) == light
