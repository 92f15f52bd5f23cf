"""Keys as the console of Windows gives them; on a POSIX terminal the tests of forms and approvals press them."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Iterator
from types import ModuleType

import pytest

from dynamic_mcp.cli import keys


class Console(ModuleType):
    """A console in which keys have been pressed."""

    def __init__(self) -> None:
        super().__init__("msvcrt")
        self.pressed = ""

    def kbhit(self) -> bool:
        return bool(self.pressed)

    def getwch(self) -> str:
        key, self.pressed = self.pressed[0], self.pressed[1:]
        return key


@pytest.fixture
def console(monkeypatch: pytest.MonkeyPatch) -> Console:
    console = Console()
    monkeypatch.setitem(sys.modules, "msvcrt", console)
    monkeypatch.setattr(sys, "platform", "win32")
    return console


@pytest.fixture
def on_windows(console: Console) -> Iterator[ModuleType]:
    """The module as Windows loads it."""
    assert keys.__spec__.origin is not None
    spec = importlib.util.spec_from_file_location("keys_on_windows", keys.__spec__.origin)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


# An arrow, a function key and Del begin with a character of their own; `S` of Del would be a choice.
@pytest.mark.parametrize(
    ("pressed", "key"), [("a", "a"), ("\r", "\r"), ("\xe0H", "?"), ("\x00;", "?"), ("\xe0S", "?"), ("yes", "?")]
)
def test_a_key_is_one_character_and_all_others_are_none(
    console: Console, on_windows: ModuleType, pressed: str, key: str
) -> None:
    with on_windows.open_keyboard() as read:
        console.pressed = pressed
        assert read(60.0) == key
        assert console.pressed == ""


def test_ctrl_c_interrupts(console: Console, on_windows: ModuleType) -> None:
    with on_windows.open_keyboard() as read:
        console.pressed = "\x03"
        with pytest.raises(KeyboardInterrupt):
            read(60.0)


def test_a_key_that_was_pressed_before_the_question_does_not_answer_it(
    console: Console, on_windows: ModuleType
) -> None:
    console.pressed = "a"
    with on_windows.open_keyboard() as read:
        assert read(0.0) == ""


def test_no_key_within_the_time_is_no_key(console: Console, on_windows: ModuleType) -> None:
    assert on_windows.read_line(0.0) is None
