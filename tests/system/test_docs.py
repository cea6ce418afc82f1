"""Every example in the README and in the documents runs, and says what the page shows.

`APPROVE=1` writes what was said into the page where it is not what stands there. What
differs from run to run must then be given back its `...` by hand.
"""

import gc
import os
from pathlib import Path

import pytest

from tests.servers.kafka import kafka
from tests.system.documents import (
    ROOT,
    Example,
    Surroundings,
    examples_in,
    free_ports_for,
    run_example,
    says_as_shown,
    variables_of,
)

_GENERATED = {"benchmarks.md", "commands.md", "properties.md", "python-reference.md"}
# Run by tests/spark, which have a Spark.
ON_SPARK = {"adjunct-spark.md", "bulk-import.md", "spark.md"}
# Run by `test_deployed_queries`, which has an instance on AWS.
ON_AWS = {"clients.md"}
# Run by tests/spark, with a cluster at this address of the page.
ON_CLUSTER, CLUSTER_MASTER = "spark-platforms.md", "spark://master.example:7077"
# Run with a broker at this port of the page.
_ON_KAFKA, _KAFKA_PORT = "adjunct-streams.md", "9092"
PAGES = sorted(path for path in (ROOT / "docs").glob("*.md") if path.name not in _GENERATED)


@pytest.mark.parametrize(
    "page",
    [page for page in PAGES if page.name not in ON_SPARK | ON_AWS | {ON_CLUSTER, _ON_KAFKA}],
    ids=lambda path: path.name,
)
def test_examples_of_a_page_print_the_documented_output(
    page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    check_page(page, surroundings(tmp_path, monkeypatch))


def test_examples_with_kafka_print_the_documented_output(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "page"
    folder.mkdir()
    with kafka(tmp_path) as broker:
        where = surroundings(folder, monkeypatch)
        where.ports = {_KAFKA_PORT: str(broker.port)}
        check_page(ROOT / "docs" / _ON_KAFKA, where)
        where.names.clear()
        gc.collect()  # closes the clients of the page before their broker ends


@pytest.mark.timeout(600)
def test_the_readme_tour_prints_the_documented_output(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    check_page(ROOT / "README.md", surroundings(tmp_path, monkeypatch))


def test_a_broken_example_is_detected(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("APPROVE", raising=False)
    page = tmp_path / "page.md"
    where = surroundings(tmp_path, monkeypatch)
    for broken in (
        "```console\n$ sleeper tabel list\n```\n",
        "```console\n$ sleeper --version\nsleeper 9\n```\n",
        "```console\n$ sleeper --version\nerror: no\n```\n",
        "```console\n$ false\n```\n",
        "```python\nprint(1)\n```\n\n```text\n2\n```\n",
    ):
        page.write_text(broken)
        with pytest.raises(AssertionError):
            check_page(page, where)


@pytest.mark.parametrize(
    ("shown", "said", "is_same"),
    [
        ("5 rows, 12 ms", "5 rows, 9 ms", True),
        ("5 rows, 12 ms", "6 rows, 12 ms", False),
        ("a ... d", "a b c d", True),
        ("a\n...\nd", "a\nb\nc\nd", True),
        ("a\n...\nd", "a\nb\nc", False),
        ("job 20a8f71f7c9a4f9682dbe68469cda751", "job f6ccc4ae6dad4121b3649bed8399569d", True),
        ("a", "a\nb", False),
        ("done in 9 s", "ingest 1 running, 2 waiting\nidle\ndone in 21 s", True),
    ],
)
def test_only_run_specific_values_may_differ_from_the_documented_output(
    shown: str, said: str, is_same: bool
) -> None:
    assert says_as_shown(shown, said) is is_same


def test_pages_that_serve_use_a_free_port(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    where = surroundings(tmp_path, monkeypatch)
    where.ports = free_ports_for("$ sleeper serve --port 18765 &\n")
    (example,) = examples_in("```python\nprint('http://127.0.0.1:18765/')\n```\n")
    printed = run_example(example, where)
    assert printed.startswith("http://127.0.0.1:")
    assert "18765" not in printed


def test_sampled_values_are_compared_by_form() -> None:
    assert says_as_shown('a < "N5"  5,100 rows  ██', 'a < "N6"  4,900 rows  █', is_sampled=True)
    assert not says_as_shown('a < "N5"  5,100 rows', 'b < "N5"  5,100 rows', is_sampled=True)


def surroundings(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Surroundings:
    """An empty folder for a page's examples, with the documents in it."""
    monkeypatch.delenv("SLEEPER_INSTANCE", raising=False)
    variables = variables_of(folder, folder / ".programs")
    monkeypatch.chdir(folder)
    (folder / "docs").symlink_to(ROOT / "docs")
    # `sleeper run` starts a process per processor, and the tests of other workers need those.
    monkeypatch.setattr(os, "cpu_count", lambda: 1)
    return Surroundings(folder, variables)


def check_page(page: Path, where: Surroundings) -> None:
    """Runs the page's examples; AssertionError at the first with other output."""
    text = page.read_text(encoding="utf-8")
    where.ports |= free_ports_for(text)
    result = examples_in(text)
    for example in result:
        place = f"{page.name}, line {example.line}"
        output = run_example(example, where)
        if says_as_shown(example.expected, output, example.is_sampled):
            continue
        if os.environ.get("APPROVE") == "1":
            text = _with_output(text, example, output.replace(str(where.folder), "..."))
            page.write_text(text, encoding="utf-8")
            continue
        raise AssertionError(
            f"{place}: `{example.code}`\nsays:\n{output}\nbut is shown to say:\n{example.expected}"
        )


def _with_output(text: str, example: Example, said: str) -> str:
    lines = [line.rstrip() for line in said.strip("\n").splitlines()]
    output = "".join(line + "\n" for line in lines)
    previous = example.code + ("```\n\n```text\n" if example.is_python else "\n")
    assert previous + example.expected in text
    return text.replace(previous + example.expected, previous + output, 1)
