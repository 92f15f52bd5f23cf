from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Raw

from dynamic_mcp.features.pins.hidden import describe_hidden, find_hidden
from tests.examples import examples

# What nothing but a secret, a mistake or a terminal has any use for.
ALWAYS_HIDDEN = [
    *map(chr, range(0x202A, 0x202F)),
    *map(chr, range(0x2060, 0x2065)),
    *map(chr, range(0x2066, 0x2070)),
    *map(chr, (0x00, 0x07, 0x08, 0x1B, 0x7F, 0x9B, 0x34F, 0x3164, 0xFFF9)),
    *map(chr, range(0xE0000, 0xE0080)),
    "\ud800",
]

# A line for each writing system, or for emoji that are put together.
TEXTS = [*Path(__file__).with_name("written.txt").read_text("utf-8").split("\n"), "a\tb\r\nc"]


@pytest.mark.parametrize("text", TEXTS)
def test_nothing_is_hidden_in_what_people_write(text: str) -> None:
    assert list(find_hidden(text)) == []


@pytest.mark.parametrize("text", TEXTS)
@examples(100)
@given(hidden=st.sampled_from(ALWAYS_HIDDEN), data=st.data())
def test_a_hidden_character_is_found_wherever_it_is(text: str, hidden: str, data: st.DataObject) -> None:
    at = data.draw(st.integers(0, len(text)))
    assert list(find_hidden(text[:at] + hidden + text[at:]))


@examples(100)
@given(
    st.text(st.characters(min_codepoint=0x20, max_codepoint=0x7E)),
    st.sampled_from(["\u200b", "\u200c", "\u200d", "\u200e", "\ufe0f"]),
)
def test_nothing_without_width_belongs_between_ascii_letters(text: str, hidden: str) -> None:
    assert hidden in find_hidden(f"a{text}x{hidden}y")


@pytest.mark.parametrize("joiner", ["\u200b", "\u200c", "\u200d", "\u200e", "\ufe0f", "\ufe0e"])
@pytest.mark.parametrize("text", ["م", "क", "😀", "ไ", "ש", "a"])
def test_a_message_in_a_row_of_them_is_found(text: str, joiner: str) -> None:
    assert list(find_hidden(text + joiner * 3 + text))


def test_a_flag_with_other_tags_is_a_message() -> None:
    tags = "".join(chr(0xE0000 + ord(each)) for each in "ignore")
    assert list(find_hidden(f"\U0001f3f4{tags}\U000e007f"))


@examples(100)
@given(st.text(st.characters(exclude_categories=("Cc", "Cf", "Cs", "Mn", "Lo", "Co"))))
def test_printable_text_has_nothing_hidden(text: str) -> None:
    assert [each for each in find_hidden(text) if each.isprintable() and each not in "\u2800\u3164\uffa0"] == []


def test_characters_are_named_as_the_standard_does_and_only_some_of_them() -> None:
    form = Raw('{"description":"a\u200b\u202e\u200b","title":"\u2060\u2061\u2062"}'.encode())
    assert describe_hidden(form) == "it has hidden characters: U+200B, U+202E, U+2060, U+2061 and others"
