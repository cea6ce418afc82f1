"""Loading of registered classes: unpacked once, imported once, and never from elsewhere."""

import errno
import stat
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from sleeper.errors import InvalidRequestError, UnavailableError, UserCodeError
from sleeper.user_code.loading import BUILT_IN_CODE, UserCode
from sleeper.user_code.wheel import BUILT_IN, CodeKind, Wheel
from tests.wheels import make_wheel


def test_built_in_names_can_be_loaded() -> None:
    for point in BUILT_IN:
        assert callable(BUILT_IN_CODE.load(point.kind, point.name)), point


@pytest.mark.parametrize("name", ["os.system", "os:system", "sleeper.api", "", "../x", "Whole"])
def test_a_name_that_is_not_registered_is_refused(code: UserCode, name: str) -> None:
    with pytest.raises(
        InvalidRequestError, match=r"no iterator .* is registered \(expected one of Age"
    ):
        code.load(CodeKind.ITERATOR, name)


def test_nothing_is_run_until_an_object_is_loaded(tmp_path: Path, code: UserCode) -> None:
    mark = tmp_path / "mark"
    source = f"with open({str(mark)!r}, 'a') as f:\n    f.write('x')\nclass A: ...\n"
    code.registry.add(
        [make_wheel(tmp_path, modules={"my_code": source}, iterators={"A": "my_code:A"})]
    )
    code.registry.wheels()
    assert not mark.exists()
    first = code.load(CodeKind.ITERATOR, "A")
    assert code.load(CodeKind.ITERATOR, "A") is first
    assert mark.read_text() == "x"


def test_modules_of_a_wheel_find_each_other(tmp_path: Path, code: UserCode) -> None:
    path = make_wheel(
        tmp_path,
        modules={
            "my_pack.__init__": "",
            "my_pack.a": "from my_pack.b import B as A",
            "my_pack.b": "class B: ...",
        },
        iterators={"A": "my_pack.a:A"},
    )
    code.registry.add([path])
    assert code.load(CodeKind.ITERATOR, "A").__module__ == "my_pack.b"


def test_a_wheel_that_is_replaced_between_its_check_and_its_unpacking_is_not_unpacked(
    tmp_path: Path, code: UserCode, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = "class A:\n    version = {}\n"
    first, second = (
        make_wheel(tmp_path / str(n), "my_own", {"my_own": source.format(n)}, {"A": "my_own:A"})
        for n in (1, 2)
    )
    code.registry.add([first])
    read = code.registry.read

    def replace_wheel(wheel: Wheel) -> bytes:
        (tmp_path / "instance" / "code" / first.name).write_bytes(second.read_bytes())
        return read(wheel)

    monkeypatch.setattr(code.registry, "read", replace_wheel)
    with pytest.raises(UnavailableError, match="was replaced during loading"):
        code.load(CodeKind.ITERATOR, "A")
    assert code.load(CodeKind.ITERATOR, "A").version == 2
    (unpacked,) = (tmp_path / "instance" / "code" / "unpacked").iterdir()
    assert unpacked.name == code.registry.get("my_own").sha256


def test_code_that_cannot_be_imported_fails_with_its_name(tmp_path: Path, code: UserCode) -> None:
    path = make_wheel(
        tmp_path,
        modules={
            "my_bad": "import no_such_module_anywhere",
            "my_exit": "raise SystemExit",
            "my_x": "x=1",
        },
        iterators={"Bad": "my_bad:X", "Exit": "my_exit:X", "Gone": "my_x:y", "One": "my_x:x"},
    )
    code.registry.add([path])
    for name, kind, reason in (
        ("Bad", UserCodeError, r"'Bad' \(my_bad:X of my_code-1.*ModuleNotFoundError: No module"),
        ("Exit", UserCodeError, "cannot be imported: SystemExit"),
        ("Gone", InvalidRequestError, "no such attribute"),
        ("One", InvalidRequestError, "the object is not callable"),
    ):
        with pytest.raises(kind, match=reason):
            code.load(CodeKind.ITERATOR, name)


def test_a_wheel_that_replaces_another_is_loaded_in_its_place(
    tmp_path: Path, code: UserCode
) -> None:
    def wheel(version: str) -> Path:
        source = f"class A: version = {version!r}"
        return make_wheel(
            tmp_path, modules={"my_code": source}, iterators={"A": "my_code:A"}, version=version
        )

    code.registry.add([wheel("1.0")])
    old = code.load(CodeKind.ITERATOR, "A")
    code.registry.remove(code.registry.get("my-code").file_name)
    with pytest.raises(InvalidRequestError, match="no iterator 'A'"):
        code.load(CodeKind.ITERATOR, "A")
    code.registry.add([wheel("2.0")])
    new = code.load(CodeKind.ITERATOR, "A")
    assert (old.version, new.version) == ("1.0", "2.0")


def test_processes_that_unpack_at_once_all_succeed(tmp_path: Path, code: UserCode) -> None:
    code.registry.add([make_wheel(tmp_path)])
    folder = tmp_path / "instance" / "code"
    program = f"""
from pathlib import Path
from sleeper.local.folder import CodeFolder
from sleeper.user_code.loading import UserCode
from sleeper.user_code.wheel import CodeKind
from sleeper.user_code.registry import Registry
folder = Path({str(folder)!r})
code = UserCode(Registry(CodeFolder(folder)), folder / "unpacked")
print(code.load(CodeKind.ITERATOR, "Whole").__name__)
"""

    def run(_: int) -> str:
        process = subprocess.run(
            [sys.executable, "-c", program], capture_output=True, text=True, check=True
        )
        return process.stdout.strip()

    with ThreadPoolExecutor(3) as pool:
        assert list(pool.map(run, range(3))) == ["Whole"] * 3
    assert [p.name for p in (folder / "unpacked").iterdir()] == [code.registry.wheels()[0].sha256]


def test_an_interrupted_unpacking_is_repeated(tmp_path: Path, code: UserCode) -> None:
    code.registry.add([make_wheel(tmp_path)])
    torn = tmp_path / "instance" / "code" / "unpacked" / "unpacking-dead"
    torn.mkdir(parents=True)
    (torn / "my_code.py").write_text("syntax error")
    assert code.load(CodeKind.ITERATOR, "Whole").__name__ == "Whole"


def test_code_that_one_user_unpacked_can_be_read_by_another(tmp_path: Path, code: UserCode) -> None:
    code._folder.mkdir(parents=True)
    code._folder.chmod(0o755)
    code.registry.add([make_wheel(tmp_path)])
    code.load(CodeKind.ITERATOR, "Whole")
    (unpacked,) = code._folder.iterdir()
    assert stat.S_IMODE(unpacked.stat().st_mode) == 0o755


@pytest.mark.parametrize("number", ["EACCES", "EROFS"])
def test_a_user_who_may_not_write_the_code_folder_can_load_from_it(
    tmp_path: Path, code: UserCode, monkeypatch: pytest.MonkeyPatch, number: str
) -> None:
    code.registry.add([make_wheel(tmp_path)])
    make_folder = Path.mkdir

    def refuse(path: Path, *arguments: object, **more: object) -> None:
        if path.is_relative_to(code._folder):
            raise OSError(getattr(errno, number), number)
        make_folder(path, *arguments, **more)  # type: ignore[arg-type]

    monkeypatch.setattr(Path, "mkdir", refuse)
    assert callable(code.load(CodeKind.ITERATOR, "Whole"))
    assert not code._folder.exists()
