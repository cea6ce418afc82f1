"""References resolve: links, files, sections, design notes, modules, properties and tests.

Checked are all Markdown pages, and docstrings and comments of all Python files. A reference is
recognised by its form, so each form has an example below that must be found broken.
"""

import ast
import io
import re
import tokenize
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from sleeper.properties.declaration import INSTANCE_PROPERTIES, TABLE_PROPERTIES
from sleeper.properties.values import gchq_names
from sleeper.user_code.wheel import CodeKind

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "core" / "sleeper"
_FOLDERS = (
    *("benchmarks", "containers", "core", "demo", "docs", "examples"),
    *("lambdas", "stacks", "tests", "tools"),
)
# Files that an example on a page writes.
_MADE_BY_EXAMPLES = {"kelvin.py", "mcp_server.py"}
# A property that a page names because it is unknown.
_NO_PROPERTIES = {"sleeper.default.page.size"}
# Attributes of spans, which `sleeper.tracing` names by its callers.
_SPAN_ATTRIBUTES = {
    f"sleeper.{name}"
    for name in (
        "job_id",
        "requests",
        "rows_read",
        "rows_written",
        "table_id",
        "transaction_types",
        "transactions",
    )
}

_LINK = re.compile(r"\]\((?!https?:|mailto:)([^)#\s]*)(?:#([^)\s]+))?\)")
_PATH = re.compile(rf"(?<![\w/.\-}}>])(?:{'|'.join(_FOLDERS)})/[\w./-]*(?![\w*<{{])")
_PYTHON_FILE = re.compile(r"`([\w/-]+\.py)`")
_PAGE = re.compile(r"(?<![\w/.:-])[\w./-]*\w\.md\b")
_SECTION = re.compile(r'([\w./-]+\.md)`?,\s+(?:"([^"]+)"|\*([^*]+)\*)')
_LEGACY_SECTION = re.compile(r"\(([A-Z]{4,}): [A-Z`]")
_NOTE = re.compile(r"\bnotes? (\d{1,4})\b", re.IGNORECASE)
_DOTTED = re.compile(r"(?:`|python -m )(sleeper(?:\.[a-zA-Z_]\w*)+)(?=[`\s])")
_TEST = re.compile(r"`(test_\w+)`")
_TARGET = re.compile(r"`make ([a-z]+)[` ]")


def test_the_references_of_a_markdown_page_resolve() -> None:
    faults = [fault for page in _pages() for fault in _faults(page, page.read_text())]
    assert not faults, "\n".join(faults)


def test_the_references_of_docstrings_and_comments_resolve() -> None:
    # This file names what does not exist.
    paths = [path for path in _python_files() if path != Path(__file__).resolve()]
    faults = [fault for path in paths for fault in _faults(path, _prose_of(path))]
    assert not faults, "\n".join(faults)


def test_the_references_of_comments_in_build_files_resolve() -> None:
    paths = [ROOT / "Makefile", ROOT / "pyproject.toml", *(ROOT / "containers").rglob("Dockerfile")]
    comments = {path: re.findall(r"#(.*)", path.read_text()) for path in paths}
    faults = [fault for path in paths for fault in _faults(path, "\n".join(comments[path]))]
    assert not faults, "\n".join(faults)


def test_every_page_is_in_the_index() -> None:
    index = (ROOT / "docs" / "README.md").read_text()
    pages = {path.name for path in (ROOT / "docs").glob("*.md")} - {"README.md"}
    assert {page for page in pages if f"({page})" not in index} == set()


@pytest.mark.parametrize(
    "note", sorted((ROOT / "docs" / "design").glob("0*.md")), ids=lambda n: n.stem
)
def test_a_design_note_has_a_decision_its_reasons_and_its_cost(note: Path) -> None:
    text = note.read_text()
    sections = re.findall(r"^## (.*)$", text, re.MULTILINE)
    assert {"Decision", "Reasons", "Cost", "Alternatives"} <= set(sections)
    appendices = [section for section in sections if section.startswith("Appendix")]
    assert sections[len(sections) - len(appendices) :] == appendices


@pytest.mark.parametrize(
    "text",
    [
        "[a page](nowhere.md)",
        "[a section](formats.md#nowhere)",
        "[a section](#nowhere)",
        "see docs/nowhere.md",
        "see NOWHERE.md",
        "see tests/unit/test_nowhere.py.",
        "in `statestore/nowhere.py`",
        'in docs/formats.md, "Nowhere"',
        'in docs/formats.md,\n    "Nowhere"',
        "in `docs/operations.md`, *Nowhere*",
        "parsed (NOWHERE: Messages)",
        "by design note 99",
        "see `sleeper.nowhere.module`",
        "see `sleeper.errors.NowhereError`",
        "set `sleeper.table.nowhere.rows.max`",
        "run `python -m sleeper.nowhere`",
        "`test_that_nobody_wrote`",
        "run `make nowhere`",
    ],
)
def test_a_broken_reference_is_found(text: str) -> None:
    assert _faults(ROOT / "docs" / "page.md", text)


@pytest.mark.parametrize(
    "text",
    [
        "[a page](tables.md#types), [a site](https://example.org/nowhere.md)",
        'docs/formats.md, "Ingest messages"; `docs/operations.md`, *Clocks*',
        "`lambdas/<name>/handler.py`, `core/*.egg-info`, `tests/unit`, s3://docs/nowhere.csv",
        "design note 2, note 0002, `sleeper.errors`, `sleeper.errors.ConflictError`",
        "`sleeper.table.gc.delay.minutes`, `sleeper.open_instance`, `make unit`",
    ],
)
def test_a_reference_that_resolves_is_no_fault(text: str) -> None:
    assert _faults(ROOT / "docs" / "page.md", text) == []


def _faults(source: Path, text: str) -> list[str]:
    """Returns what does not resolve in the text, each with its file."""
    result = [
        *_broken_links(source, text),
        *(path for path in _PATH.findall(text) if not (ROOT / path.rstrip("./")).exists()),
        *(name for name in _PYTHON_FILE.findall(text) if not _is_python_file(name)),
        *(page for page in _PAGE.findall(text) if _page(source, page) is None),
        *_broken_sections(source, text),
        *(name for name in _LEGACY_SECTION.findall(text) if not (ROOT / f"{name}.md").exists()),
        *(f"note {number}" for number in _NOTE.findall(text) if int(number) not in _notes()),
        *(name for name in _DOTTED.findall(text) if not _is_known_name(name)),
        *(name for name in _TEST.findall(text) if name not in _tests()),
        *(f"make {name}" for name in _TARGET.findall(text) if name not in _targets()),
    ]
    return [f"{source.relative_to(ROOT)}: {fault}" for fault in dict.fromkeys(result)]


def _broken_links(source: Path, text: str) -> Iterator[str]:
    if source.suffix != ".md":
        return
    for target, anchor in _LINK.findall(text):
        result = source.parent / target if target else source
        headings = _anchors(text if not target else result.read_text()) if anchor else set()
        if not (result.exists() or not target) or (anchor and anchor not in headings):
            yield f"({target}#{anchor})"


def _broken_sections(source: Path, text: str) -> Iterator[str]:
    for name, quoted_text, emphasised in _SECTION.findall(text):
        page, section = _page(source, name), quoted_text or emphasised
        if page is None or " ".join(section.split()) not in _headings(page.read_text()):
            yield f'{name}, "{section}"'


def _page(source: Path, name: str) -> Path | None:
    """Finds a page by its path from the root, or from the folder of the one that cites it."""
    for folder in (ROOT, source.parent):
        if (folder / name).is_file():
            return folder / name
    return None


def _headings(text: str) -> set[str]:
    return {heading.strip() for heading in re.findall(r"^#+ (.*)$", text, re.MULTILINE)}


def _anchors(text: str) -> set[str]:
    """Returns the anchors of a page's headings, as GitHub makes them."""
    return {
        re.sub(r"[^a-z0-9 _-]", "", heading.lower()).replace(" ", "-")
        for heading in _headings(text)
    }


def _is_python_file(name: str) -> bool:
    return name in _MADE_BY_EXAMPLES or any(
        path.as_posix().endswith(f"/{name}") for path in _python_files()
    )


def _is_known_name(name: str) -> bool:
    """Whether a dotted name is a module or in one, a property, or a group of entry points."""
    if any(known == name or known.startswith(f"{name}.") for known in _property_names()):
        return True
    if name in _NO_PROPERTIES | _SPAN_ATTRIBUTES | {kind.value for kind in CodeKind}:
        return True
    parts = name.split(".")[1:]
    for length in range(len(parts), -1, -1):
        module = _module(parts[:length])
        if module is not None:
            remainder = parts[length:]
            return (
                not remainder or re.search(rf"\b{remainder[0]}\b", module.read_text()) is not None
            )
    return False


def _module(parts: list[str]) -> Path | None:
    place = PACKAGE.joinpath(*parts)
    for path in (place / "__init__.py", place.with_suffix(".py")):
        if path.is_file():
            return path
    return None


def _prose_of(path: Path) -> str:
    """Returns a module's docstrings and comments. A file without any reference is not parsed."""
    text = path.read_text(encoding="utf-8")
    forms = (_PATH, _PYTHON_FILE, _PAGE, _LEGACY_SECTION, _NOTE, _DOTTED, _TEST, _TARGET)
    if not any(form.search(text) for form in forms):
        return ""
    docstrings = [
        node.value.value
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.Expr)
        and isinstance(node.value, ast.Constant)
        and isinstance(node.value.value, str)
    ]
    tokens = tokenize.generate_tokens(io.StringIO(text).readline)
    comments = [token.string for token in tokens if token.type == tokenize.COMMENT]
    return "\n".join((*docstrings, *(comment.lstrip("#") for comment in comments)))


@cache
def _pages() -> tuple[Path, ...]:
    below = (page for folder in _FOLDERS for page in (ROOT / folder).rglob("*.md"))
    return (*sorted(ROOT.glob("*.md")), *sorted(below))


@cache
def _python_files() -> tuple[Path, ...]:
    below = (path for folder in _FOLDERS for path in (ROOT / folder).rglob("*.py"))
    return (*sorted(ROOT.glob("*.py")), *sorted(below))


@cache
def _notes() -> frozenset[int]:
    return frozenset(int(path.name[:4]) for path in (ROOT / "docs" / "design").glob("0*.md"))


@cache
def _property_names() -> frozenset[str]:
    declaration = (item.name for item in (*INSTANCE_PROPERTIES, *TABLE_PROPERTIES))
    return frozenset((*declaration, *gchq_names()))


@cache
def _tests() -> frozenset[str]:
    modules = {path.stem for path in _python_files()}
    text = "".join(path.read_text() for path in (ROOT / "tests").rglob("test_*.py"))
    return frozenset(modules | set(re.findall(r"def (test_\w+)", text)))


@cache
def _targets() -> frozenset[str]:
    return frozenset(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
