import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dynamic_mcp.config.jsonc import DuplicateKeyError, blank_extensions, loads

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(st.characters(exclude_categories=["Cs"])),
    lambda inner: st.lists(inner) | st.dictionaries(st.text('/*,"\\a]}', max_size=5), inner),
)
NOISE = st.sampled_from(["", " ", "\n", "// a, ]\n", '/* ,} " */', "/**/", "/* \n // */", "\t//\n", "/***/"])


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ('{"a": 1} // the end', {"a": 1}),
        ('// first\n{"a": 1}', {"a": 1}),
        ('{/* one */"a"/* two */:/**/1}', {"a": 1}),
        ('{"a": 1,}', {"a": 1}),
        ("[1, 2, // two\n]", [1, 2]),
        ("[1, /* more\n to come */ ]", [1]),
        ('["// not a comment", "/* nor this */", ",]"]', ["// not a comment", "/* nor this */", ",]"]),
        ('["a quote \\" // still inside",]', ['a quote " // still inside']),
        ('["\\\\"] // outside', ["\\"]),
        ('{"a": 1} // a comment that ends with a carriage return\r', {"a": 1}),
        ("[/* a // b */ 1]", [1]),
        ("[1 // a /* b\n]", [1]),
    ],
)
def test_comments_and_trailing_commas_are_allowed(text: str, value: object) -> None:
    assert loads(text) == value


@pytest.mark.parametrize(
    ("text", "line", "column"),
    [
        ("[,]", 1, 2),
        ("{,}", 1, 2),
        ("[1,,]", 1, 4),
        ("[1,\n /* two */ ,]", 2, 12),
        ('{"a":,}', 1, 6),
        ("// comment\n{'a': 1}", 2, 2),
        ('/* one\n   two */ {"a" 1}', 2, 16),
        ('{\n  "a": 1 // no comma\n  "b": 2\n}', 3, 3),
        ('{"a": 1}\n/* never closed', 2, 1),
        ("[1] /*/", 1, 5),
        ('["never closed]', 1, 2),
        ('["never closed // so no comment\n]', 1, 32),
        ("[NaN]", 1, 2),
        ('["NaN", // Infinity\n -Infinity]', 2, 2),
        ('["\\ud800"]', 1, 3),
        ('["\\\\ud800", "\\ud83d\\ude00", "\\udc00"]', 1, 30),
        ("", 1, 1),
    ],
)
def test_an_error_has_its_place_in_the_text_as_given(text: str, line: int, column: int) -> None:
    with pytest.raises(json.JSONDecodeError) as caught:
        loads(text)

    assert (caught.value.lineno, caught.value.colno) == (line, column)


@given(JSON)
def test_whatever_is_json_already_keeps_its_value(value: object) -> None:
    text = json.dumps(value, ensure_ascii=False)

    assert loads(text) == value
    assert blank_extensions(text) == text


@given(JSON, st.data())
def test_noise_between_tokens_changes_no_value(value: object, data: st.DataObject) -> None:
    tokens = json.JSONEncoder(ensure_ascii=False).iterencode(value)
    text = "".join(data.draw(NOISE) + token for token in tokens) + data.draw(NOISE)

    assert loads(text) == value


@given(st.text('/*",\\[]{}:1a\n\r '))
def test_blanking_moves_nothing(text: str) -> None:
    text += " */"  # for a comment that would never end

    result = blank_extensions(text)

    assert len(result) == len(text)
    assert all(new in (old, " ") for old, new in zip(text, result, strict=True))
    assert result.count("\n") == text.count("\n")


@given(st.text(), st.text('"/*,[]{}:1 \n'))
def test_any_text_is_a_value_or_one_of_two_errors(words: str, signs: str) -> None:
    for text in (words, signs):
        try:
            loads(text)
        except (json.JSONDecodeError, DuplicateKeyError):
            continue


@pytest.mark.parametrize(
    ("text", "paths"),
    [
        ('{"a": 1, "a": 2}', [("a",)]),
        ('{"s": {"b": {}, "c": [0, {"d": 1, "d": 1}], "b": {}}}', [("s", "b"), ("s", "c", 1, "d")]),
        ('{"a": {"x": 1, "x": 2}, "a": {}}', [("a",)]),
        ('{"a": 1, "a": 2, "a": 3, // twice is enough\n}', [("a",)]),
    ],
)
def test_a_key_that_is_there_twice_is_an_error_with_its_path(text: str, paths: object) -> None:
    with pytest.raises(DuplicateKeyError) as caught:
        loads(text)

    assert caught.value.paths == paths


@pytest.mark.parametrize("opening", ["[", '{"a":', "[[], "])
def test_deep_nesting_is_an_error_like_any_other(opening: str) -> None:
    with pytest.raises(json.JSONDecodeError, match="Nested too deeply"):
        loads(opening * 200_000)


@pytest.mark.parametrize(
    "text",
    ['"' + '\\"' * 300_000, "," * 300_000, "[" + " " * 300_000 + ",", "/*" * 150_000, "//" * 150_000, "/" * 300_000],
)
def test_hostile_text_takes_no_more_than_linear_time(text: str) -> None:
    with pytest.raises(json.JSONDecodeError):
        loads(text)


def test_a_number_of_many_digits_is_no_surprise() -> None:
    assert loads("[" + "9" * 10_000 + "]") == [float("inf")]
