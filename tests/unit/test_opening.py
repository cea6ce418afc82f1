"""Names of instances."""

from pathlib import Path

import pytest

from sleeper.errors import InvalidRequestError
from sleeper.opening import create_instance, find_instance, open_instance


@pytest.mark.parametrize(
    "name",
    ["s3://team/one", "gs://team/one", "file:///tmp/one", "aws://one", Path("s3://team/one")],
)
def test_urls_are_refused(
    name: str | Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for act in (create_instance, open_instance, find_instance):
        with pytest.raises(InvalidRequestError, match="is a URL"):
            act(name)
    monkeypatch.setenv("SLEEPER_INSTANCE", str(name))
    with pytest.raises(InvalidRequestError, match="expected a folder or aws:INSTANCE_ID"):
        create_instance(None)
    assert list(tmp_path.iterdir()) == []


def test_folders_may_have_colons_in_their_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    create_instance("a:b")
    open_instance("a:b").close()
