"""What wheels may be added, and which names there are then."""

import io
import os
import stat
import zipfile
from pathlib import Path

import pytest

from sleeper.errors import InvalidRequestError, NotFoundError
from sleeper.user_code.loading import UserCode
from sleeper.user_code.wheel import CodeKind, read_wheel
from tests.wheels import ITERATOR_HEAD, make_wheel


def check_refusal(path: Path, match: str) -> None:
    with pytest.raises(InvalidRequestError, match=match):
        read_wheel(path.name, path.read_bytes())


def test_a_wheel_registers_its_entry_points(tmp_path: Path, code: UserCode) -> None:
    path = make_wheel(
        tmp_path,
        modules={"my_code": ITERATOR_HEAD, "my_code_more": "def pick(files, settings): ..."},
        iterators={"Mine": "my_code:Whole"},
        strategies={"pick_few": "my_code_more:pick"},
        version="2.1",
    )
    (wheel,) = code.registry.add([path])
    assert (wheel.project, wheel.version, wheel.bytes) == ("my-code", "2.1", path.stat().st_size)
    assert [(p.kind, p.name, p.place) for p in wheel.entry_points] == [
        (CodeKind.ITERATOR, "Mine", "my_code:Whole"),
        (CodeKind.STRATEGY, "pick_few", "my_code_more:pick"),
    ]
    assert wheel.modules == ("my_code", "my_code_more")
    assert code.registry.wheels() == [wheel]
    assert code.registry.find(CodeKind.ITERATOR, "Mine")[1] == wheel
    with pytest.raises(
        InvalidRequestError, match=r"no iterator 'pick_few' .* AgeOffByField, Latest"
    ):
        code.registry.find(CodeKind.ITERATOR, "pick_few")


@pytest.mark.parametrize("method", [zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_a_damaged_wheel_is_refused_or_whole_whichever_byte_is_damaged(
    tmp_path: Path, method: int
) -> None:
    plain = make_wheel(tmp_path)
    packed = io.BytesIO()
    with zipfile.ZipFile(plain) as members, zipfile.ZipFile(packed, "w", method) as archive:
        for name in members.namelist():
            archive.writestr(name, members.read(name))
    content = packed.getvalue()
    outcomes = set()
    for place in range(0, len(content), 3):
        damaged_content = content[:place] + bytes([content[place] ^ 0x91]) + content[place + 1 :]
        try:
            outcomes.add(read_wheel(plain.name, damaged_content).entry_points[0].name)
        except InvalidRequestError:
            outcomes.add("")
    assert outcomes == {"", "Whole"}


def test_a_damaged_wheel_in_the_folder_leaves_the_others_usable(
    tmp_path: Path, code: UserCode
) -> None:
    (good,) = code.registry.add([make_wheel(tmp_path / "made")])
    folder = tmp_path / "instance" / "code"
    bad = make_wheel(folder, "other", {"other": ITERATOR_HEAD * 9}, {"Other": "other:Whole"})
    members = zipfile.ZipFile(bad)
    texts = {name: members.read(name) for name in members.namelist()}
    with zipfile.ZipFile(bad, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, text in texts.items():
            archive.writestr(name, text)
    content = bytearray(bad.read_bytes())
    start = content.index(b"other.py") + len("other.py")
    content[start : start + 20] = b"\xff" * 20
    bad.write_bytes(content)
    (folder / "no_file-1.0-py3-none-any.whl").mkdir()
    assert code.registry.wheels() == [good]
    assert code.registry.invalid_files() == [bad.name]
    assert code.load(CodeKind.ITERATOR, "Whole").__name__ == "Whole"


def test_adding_the_same_again_changes_nothing(tmp_path: Path, code: UserCode) -> None:
    path = make_wheel(tmp_path)
    assert len(code.registry.add([path])) == 1
    assert code.registry.add([path]) == []
    code.registry.remove(code.registry.get("my_code").file_name)
    assert code.registry.wheels() == []
    with pytest.raises(NotFoundError, match="unknown wheel 'my_code'"):
        code.registry.get("my_code")


def test_of_two_wheels_both_are_added_or_none(tmp_path: Path, code: UserCode) -> None:
    good = make_wheel(tmp_path)
    bad = make_wheel(tmp_path, "other", {"other": ""}, {"SumByKey": "other:X"})
    with pytest.raises(InvalidRequestError, match="iterator 'SumByKey' is built in"):
        code.registry.add([good, bad])
    assert code.registry.wheels() == []


def test_names_modules_and_projects_are_one_wheels_only(tmp_path: Path, code: UserCode) -> None:
    code.registry.add([make_wheel(tmp_path)])
    for folder, other, reason in (
        ("a", make_wheel(tmp_path / "a", version="2.0"), "my_code-1.0-.*already exists"),
        (
            "b",
            make_wheel(tmp_path / "b", "b", {"b": ""}, {"Whole": "b:X"}),
            "'Whole' is registered by",
        ),
        (
            "c",
            make_wheel(tmp_path / "c", "c", {"my_code": ""}, {"C": "my_code:X"}),
            "module 'my_code'",
        ),
    ):
        with pytest.raises(InvalidRequestError, match=reason):
            code.registry.add([other])
        assert folder


def test_wheels_that_cannot_load_here_are_refused(tmp_path: Path, code: UserCode) -> None:
    for path, reason in (
        (
            make_wheel(tmp_path, "a", {"json": ""}, {"A": "json:X"}),
            "module 'json' is installed",
        ),
        (make_wheel(tmp_path, "b", {"pyarrow": ""}, {"A": "pyarrow:X"}), "'pyarrow' is installed"),
        (make_wheel(tmp_path, "c", needs=("no-such-thing>=1",)), "not installed here"),
        (make_wheel(tmp_path, "d", needs=("pyarrow<1",)), r"needs pyarrow<1: \d+.* is installed"),
        (tmp_path / "none-1.0-py3-none-any.whl", "No such file"),
    ):
        with pytest.raises(InvalidRequestError, match=reason):
            code.registry.add([path])
    fits = make_wheel(tmp_path, "e", needs=("pyarrow>=1", 'pywin32; sys_platform == "win32"'))
    assert len(code.registry.add([fits])) == 1


def test_a_file_that_is_no_wheel_is_refused(tmp_path: Path) -> None:
    not_named = tmp_path / "my_code.whl"
    not_named.write_bytes(b"")
    check_refusal(not_named, "is not a valid name of a wheel")
    no_zip = tmp_path / "x-1.0-py3-none-any.whl"
    no_zip.write_bytes(b"no zip at all")
    check_refusal(no_zip, "is not a readable zip file")
    check_refusal(
        make_wheel(tmp_path, tag="cp27-cp27m-win32"),
        "does not support this platform: .*expected py3",
    )
    check_refusal(make_wheel(tmp_path, without="RECORD"), "my_code-1.0.dist-info has no RECORD")
    check_refusal(
        make_wheel(tmp_path, "y").rename(tmp_path / "z-1.0-py3-none-any.whl"), "no .dist-info of z"
    )


def test_a_torn_wheel_is_refused(tmp_path: Path) -> None:
    path = make_wheel(tmp_path)
    path.write_bytes(path.read_bytes()[:-30])
    check_refusal(path, "is not a readable zip file")


@pytest.mark.parametrize("name", ["../out.py", "/etc/out.py", "a/../../out.py", "a\\..\\out.py"])
def test_a_member_outside_of_the_folder_is_refused(tmp_path: Path, name: str) -> None:
    check_refusal(make_wheel(tmp_path, extra={name: "x"}), "is outside its folder")


def test_links_and_files_to_install_are_refused(tmp_path: Path) -> None:
    path = make_wheel(tmp_path)
    with zipfile.ZipFile(path, "a") as archive:
        link = zipfile.ZipInfo("my_code_link.py")
        link.external_attr = (stat.S_IFLNK | 0o777) << 16
        archive.writestr(link, "/etc/passwd")
    check_refusal(path, "'my_code_link.py' is a link")
    check_refusal(
        make_wheel(tmp_path, extra={"my_code-1.0.data/scripts/run": ""}), "require an installation"
    )


@pytest.mark.parametrize(
    ("points", "reason"),
    [
        ("", "registers nothing"),
        ("[console_scripts]\nx = my_code:Whole\n", "registers nothing"),
        ("[sleeper.iterators]\nX = my_code\n", "'my_code' is not module:Object"),
        ("[sleeper.iterators]\nX = my_code:a.b\n", "is not module:Object"),
        ("[sleeper.iterators]\nX = os:system\n", "the wheel has no module os"),
        ("[sleeper.iterators]\na.b = my_code:Whole\n", "invalid name \\(expected a letter, then"),
        ("[sleeper.iterators]\nX = my_code:A\nX = my_code:B\n", "entry_points.txt: .*already"),
        ("X = my_code:A\n", "entry_points.txt"),
    ],
)
def test_invalid_entry_points_are_refused(tmp_path: Path, points: str, reason: str) -> None:
    check_refusal(make_wheel(tmp_path, points=points), reason)


def test_a_wheel_that_is_too_large_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sleeper.user_code.wheel._UNPACKED_BYTES_MAX", 1000)
    check_refusal(make_wheel(tmp_path, extra={"my_code_data.txt": "x" * 2000}), "is too large")


@pytest.mark.parametrize("name", ["my_code/big.py", "my_code-1.0.dist-info/NOTICE"])
def test_texts_of_a_wheel_are_limited(tmp_path: Path, name: str) -> None:
    content = make_wheel(tmp_path).read_bytes()
    packed = io.BytesIO(content)
    with zipfile.ZipFile(packed, "a", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(name, bytes(9 * 1024**2))
    with pytest.raises(InvalidRequestError, match=f"'{name}' has 9,437,184 bytes .*8 MiB"):
        read_wheel("my_code-1.0-py3-none-any.whl", packed.getvalue())


def test_another_content_under_the_same_name_is_read_again(tmp_path: Path, code: UserCode) -> None:
    path = make_wheel(tmp_path)
    code.registry.add([path])
    first = code.registry.wheels()
    present = tmp_path / "instance" / "code" / path.name
    other = make_wheel(tmp_path / "other", iterators={"Other": "my_code:Whole"})
    os.replace(other, present)
    assert code.registry.wheels() != first
    assert code.registry.find(CodeKind.ITERATOR, "Other")


def test_a_file_that_is_no_wheel_does_not_affect_others(
    tmp_path: Path, code: UserCode, caplog: pytest.LogCaptureFixture
) -> None:
    code.registry.add([make_wheel(tmp_path)])
    (tmp_path / "instance" / "code" / "a-1.0-py3-none-any.whl").write_text("put here by hand")
    assert code.load(CodeKind.ITERATOR, "Whole")
    assert code.registry.invalid_files() == ["a-1.0-py3-none-any.whl"]
    assert [r.message for r in caplog.records] == [
        "invalid wheel ignored: a-1.0-py3-none-any.whl is not a readable zip file: "
        "File is not a zip file"
    ]
