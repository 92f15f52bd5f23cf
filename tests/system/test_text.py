from __future__ import annotations

import pytest

from dynamic_mcp.system.text import MAX_LINE, escape, one_line, pluralize, replace_unprintable


@pytest.mark.parametrize(("number", "words"), [(0, "0 groups"), (1, "1 group"), (2, "2 groups"), (500, "500 groups")])
def test_one_is_singular_and_every_other_number_plural(number: int, words: str) -> None:
    assert pluralize(number, "group") == words


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain é 日本", "plain é 日本"),
        ("\x1b[31m", "\\x1b[31m"),
        ("a\nb", "a\\nb"),
        ("\u202e", "\\u202e"),
        ("\x9b", "\\x9b"),
    ],
)
def test_what_a_terminal_would_act_on_is_escaped(text: str, shown: str) -> None:
    assert escape(text) == shown


def test_what_may_stay_is_not_escaped() -> None:
    assert escape("a\nb\x07", keep="\n") == "a\nb\\x07"


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("plain", "plain"),
        ("  two\n lines\r\n", "two lines"),
        ("bell\x07 and \x1b[31mred\x1b[0m", "bell and [31mred [0m"),
        ("a\u2028b\u202ec\u200bd", "a b c d"),
        ("", ""),
        ("\n\t", ""),
        ("naïve 日本", "naïve 日本"),
    ],
)
def test_foreign_text_fits_into_one_line(text: str, line: str) -> None:
    assert one_line(text) == line


def test_long_text_is_cut_to_fit() -> None:
    line = one_line("word " * 1000)
    assert len(line) <= MAX_LINE
    assert line.endswith("word…")


def test_text_is_cut_to_another_length_or_not_at_all() -> None:
    assert one_line("one two\nthree", 8) == "one two…"
    assert one_line("word\n" * 1000, None) == ("word " * 1000).strip()


@pytest.mark.parametrize(
    ("text", "shown"), [("plain é 日本", "plain é 日本"), ("a\x1b[31m\nb", "a?[31m?b"), ("\ud800\u202e", "??")]
)
def test_what_cannot_be_seen_is_replaced_one_for_one(text: str, shown: str) -> None:
    assert replace_unprintable(text, "?") == shown
    assert replace_unprintable(text) == shown.replace("?", "\ufffd")
