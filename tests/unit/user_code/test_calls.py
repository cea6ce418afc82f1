"""Errors of user code end no process; interrupts of the process do."""

import asyncio
import signal
import threading
from collections.abc import Iterator

import pytest

from sleeper.errors import UserCodeError
from sleeper.user_code.calls import contain_errors


def fail(reason: str) -> UserCodeError:
    return UserCodeError(f"code: {reason}")


@pytest.mark.parametrize(
    "error", [KeyError("k"), SystemExit(3), KeyboardInterrupt(), asyncio.CancelledError()]
)
def test_every_error_of_user_code_is_its_own(error: BaseException) -> None:
    pattern = f"code: {type(error).__name__}"
    with pytest.raises(UserCodeError, match=pattern) as raised, contain_errors(fail):
        raise error
    assert raised.value.__cause__ is error


def test_errors_of_a_thread_are_contained_too() -> None:
    errors: list[BaseException] = []

    def run() -> None:
        try:
            with contain_errors(fail):
                raise KeyboardInterrupt
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    assert [type(each) for each in errors] == [UserCodeError]


@pytest.fixture
def terminable() -> Iterator[None]:
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    yield
    signal.signal(signal.SIGTERM, before)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.usefixtures("terminable")
def test_an_interrupt_passes_and_handlers_are_restored(number: signal.Signals) -> None:
    before = [signal.getsignal(each) for each in (signal.SIGINT, signal.SIGTERM)]
    with pytest.raises(KeyboardInterrupt), contain_errors(fail):
        signal.raise_signal(number)
    assert [signal.getsignal(each) for each in (signal.SIGINT, signal.SIGTERM)] == before


def test_errors_of_the_passed_types_are_unchanged() -> None:
    with pytest.raises(ValueError, match="as it is"), contain_errors(fail, passed=(ValueError,)):
        raise ValueError("as it is")
    with pytest.raises(UserCodeError), contain_errors(fail, passed=(ValueError,)):
        raise SystemExit
