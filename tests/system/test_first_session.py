"""A new user's first session: from a folder of irregular CSV files to a chart in a browser.

Each command is a process of its own, as in a terminal, and is the next one that the pages or the
commands name. A session may have as many commands as a user types within five minutes.
"""

import gzip
import json
import subprocess
import sys
from collections import defaultdict
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from urllib.parse import quote

import pytest

from tests.system.browser import BROWSER, open_browser

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(BROWSER is None, reason="there is no chromium; `make test` installs it"),
]
_COMMANDS_MAX = 10
_MAIN = "from sleeper.cli.main import main; main()"
_SECONDS_MAX = 120
_ZONES = ("Barra Funda", "Centro", "Jardim São Luís", "Morumbi", "Tatuapé")
_START = datetime(2013, 1, 31, 5, 15, tzinfo=UTC)
_CABS = 40
_BY_ZONE = (
    "SELECT zone, count(*) AS trips, sum(fare) AS fare FROM trips GROUP BY zone ORDER BY zone"
)


@dataclass(frozen=True)
class Trip:
    """A row of the files. `tip` is missing from one of them."""

    cab: int
    pickup_at: datetime
    zone: str
    fare: float
    tip: float | None = None


@dataclass
class Session:
    """Runs commands in a folder, without settings of the tests, and counts them."""

    folder: Path
    commands: list[str] = field(default_factory=list)

    def start(self, *arguments: str) -> "subprocess.Popen[str]":
        self.commands.append(" ".join(arguments))
        assert len(self.commands) <= _COMMANDS_MAX, self.commands
        return subprocess.Popen(
            [sys.executable, "-c", _MAIN, "--instance", "taxis", *arguments],
            cwd=self.folder,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            encoding="utf-8",
        )

    def run(self, *arguments: str) -> tuple[str, str]:
        """Returns the output and the messages of a command, which must succeed."""
        process = self.start(*arguments)
        output, messages = process.communicate(timeout=_SECONDS_MAX)
        assert process.returncode == 0, f"{arguments}: {messages}"
        return output, messages


def trips(month: int, count: int, has_tip: bool = True) -> list[Trip]:
    first = month * 1000
    return [
        Trip(
            number * 7 % _CABS,
            _START + timedelta(minutes=31 * number),
            _ZONES[number * 3 % len(_ZONES)],
            5 + number % 60 / 4,
            number % 9 / 2 if has_tip and number % 4 else None,
        )
        for number in range(first, first + count)
    ]


def write_files(folder: Path) -> list[Trip]:
    """Writes files that differ in delimiter, encoding, columns, their order and line ends."""
    folder.mkdir()
    january, february, march, april = (
        trips(0, 300),
        trips(1, 200, False),
        trips(2, 250),
        trips(3, 9),
    )
    lines = ["cab;zone;pickup_at;fare;tip"]
    lines += [f"{t.cab};{t.zone};{_time(t, 'T')};{t.fare};{_text(t.tip)}" for t in january]
    (folder / "january.csv").write_bytes("\r\n".join([*lines, ""]).encode("latin-1"))
    lines = ["pickup_at,cab,fare,zone"]
    lines += [f"{t.pickup_at.isoformat()},{t.cab},{t.fare},{t.zone}" for t in february]
    (folder / "february.csv").write_text("\n".join(lines), encoding="utf-8")
    lines = ["cab\tpickup_at\tfare\ttip\tzone"]
    lines += [f'{t.cab}\t{_time(t, " ")}\t{t.fare}\t{_text(t.tip)}\t"{t.zone}"' for t in march]
    (folder / "march.tsv.gz").write_bytes(gzip.compress("\n".join(lines).encode()))
    lines = ["cab,pickup_at,zone,fare,tip"]
    lines += [f"{t.cab},{_time(t, 'T')}Z,{t.zone},{t.fare},{_text(t.tip)}" for t in april]
    (folder / "april.csv").write_bytes("\n".join(lines).encode("utf-16"))
    return [*january, *february, *march, *april]


def _time(trip: Trip, separator: str) -> str:
    return trip.pickup_at.replace(tzinfo=None).isoformat(separator)


def _text(value: float | None) -> str:
    return "" if value is None else str(value)


@pytest.fixture
def session(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Session:
    monkeypatch.delenv("SLEEPER_INSTANCE", raising=False)
    return Session(tmp_path)


def test_from_a_folder_of_irregular_csv_files_to_a_chart(session: Session) -> None:
    rows = write_files(session.folder / "data")
    session.run("instance", "create")
    like = ("trips", "--like", "data/*", "--key", "cab", "--sort", "pickup_at")
    schema, found = session.run("table", "create", *like)
    assert "january.csv: csv, delimiter ';', encoding cp1252" in found
    assert "april.csv: csv, delimiter ',', encoding utf-16" in found
    assert _types(schema) == {
        "cab": "LongType",
        "pickup_at": "TimestampType",
        "zone": "StringType",
        "fare": "DoubleType",
        "tip": "DoubleType",
    }
    assert "next: sleeper ingest trips 'data/*'" in found
    _, said = session.run("ingest", "trips", "data/*")
    assert f"{len(rows)} rows in 1 file into trips" in said
    _check_query(session, rows)
    _check_sql(session, rows)
    _check_console(session, rows)


def _types(schema: str) -> dict[str, str]:
    members = json.loads(schema)
    return {f["name"]: f["type"] for name in members for f in members[name]}


def _check_query(session: Session, rows: list[Trip]) -> None:
    """Checks the trips of one cab, in order of time, with the nulls of the file without tips."""
    output, _ = session.run("query", "trips", "--key", "7", "--format", "json")
    found = [json.loads(line) for line in output.splitlines()]
    expected = sorted((t for t in rows if t.cab == 7), key=lambda t: t.pickup_at)
    assert [(r["zone"], r["fare"], r["tip"]) for r in found] == [
        (t.zone, t.fare, t.tip) for t in expected
    ]
    assert [datetime.fromisoformat(r["pickup_at"]) for r in found] == [
        t.pickup_at for t in expected
    ]
    assert any(t.tip is None for t in expected)


def _by_zone(rows: list[Trip]) -> list[tuple[str, int, float]]:
    fares: dict[str, list[float]] = defaultdict(list)
    for trip in rows:
        fares[trip.zone].append(trip.fare)
    return [(zone, len(fares[zone]), sum(fares[zone])) for zone in sorted(fares)]


def _check_sql(session: Session, rows: list[Trip]) -> None:
    output, _ = session.run("sql", _BY_ZONE, "--format", "json")
    found = [json.loads(line) for line in output.splitlines()]
    assert [(r["zone"], r["trips"], r["fare"]) for r in found] == _by_zone(rows)


def _check_console(session: Session, rows: list[Trip]) -> None:
    """Checks the table and a chart in a browser, as a user opens them at the printed address."""
    server = session.start("serve", "--port", "0")
    try:
        assert server.stderr is not None
        url = server.stderr.readline().split()[-1]
        with open_browser(session.folder / "profile") as page:
            page.resize(1080, 800)
            page.open(url)
            page.wait_for_text(f"{len(rows)}")
            links = "[...document.querySelectorAll('main a')]"
            page.run(f"{links}.find(a => a.innerText === 'trips').click()")
            page.wait_for_text("timestamp")
            page.open("about:blank")
            page.open(f"{url}/#/query?sql={quote(_BY_ZONE)}")
            page.wait_for_text("Run one SELECT")
            page.run("document.getElementById('statement').focus()")
            page.press("Enter", ctrl=True)
            page.wait_for_text(f"{len(_ZONES)} rows in")
            cells = "[...document.querySelectorAll('.result tr')].map(r => r.cells[0].innerText)"
            assert page.run(cells)[1:] == [zone for zone, *_ in _by_zone(rows)]
            page.run(
                "[...document.querySelectorAll('button')]"
                ".find(b => b.textContent.startsWith('Chart')).click()"
            )
            bars = "document.querySelectorAll('svg.chart rect.series').length"
            page.wait_until(f"{bars} === {len(_ZONES)}")
            assert "zone" in page.run("document.querySelector('svg.chart').ariaLabel")
            assert page.errors == []
    finally:
        server.terminate()
        server.communicate(timeout=_SECONDS_MAX)
