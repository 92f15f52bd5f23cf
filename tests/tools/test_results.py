"""A result within the limit passes byte for byte; a longer one is cut, and nothing is lost."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Raw

from dynamic_mcp.config.resolved import CallHandling
from dynamic_mcp.tools import results
from tests.examples import examples

Json = Any  # whatever JSON a test writes down

LIMIT = 1000


class TextStore:
    """Stores texts as a session would."""

    def __init__(self) -> None:
        self.texts: list[tuple[str, str]] = []

    def __call__(self, text: str, media_type: str) -> str:
        self.texts.append((text, media_type))
        return f"kept:{len(self.texts)}"


def answers(*, compact: bool = False, limit: int = LIMIT) -> CallHandling:
    return CallHandling(validate=None, limit=limit, compact=compact)


def raw(value: Json) -> Raw:
    return Raw(json.dumps(value).encode())


def text(words: str) -> Json:
    return {"type": "text", "text": words}


def shape(
    result: Json, kept: TextStore, *, compact: bool = False, links: bool = True, keeps_structure: bool = False
) -> dict[str, Json]:
    found = results.shape(raw(result), answers(compact=compact), kept, links=links, keeps_structure=keeps_structure)
    return json.loads(bytes(found))  # type: ignore[no-any-return]


IMAGE = {"type": "image", "data": "A" * 5000, "mimeType": "image/png"}


@pytest.mark.parametrize(
    "result",
    [
        b'{"content": [ {"text":"a\\/b","type":"text"} ],"n":1.50}',
        json.dumps({"content": [IMAGE, {"type": "hologram", "data": "x" * 5000}]}).encode(),
        json.dumps({"content": [text("x" * LIMIT)]}).encode(),
        b'{"content":"' + b"x" * 2000 + b'"}',
        b'{"other":"' + b"x" * 2000 + b'"}',
        rb'{"content":[{"type":"text","text":"' + rb"\u00e9" * 400 + rb'"}]}',
    ],
    ids=["short", "binary", "just short enough", "odd content", "no content", "escapes"],
)
def test_what_needs_nothing_passes_byte_for_byte(result: bytes) -> None:
    kept = TextStore()
    came = Raw(result)

    assert (
        results.can_pass_unchanged(came, answers())
        or results.shape(came, answers(), kept, links=True, keeps_structure=False) is came
    )
    assert kept.texts == []


def test_a_long_text_is_cut_with_a_note_and_kept_whole() -> None:
    kept = TextStore()
    whole = "\n".join(f"line {n}" for n in range(500))

    blocks = shape({"content": [text(whole)], "_meta": {"a": 1}}, kept)["content"]

    assert whole.startswith(blocks[0]["text"])
    assert blocks[0]["text"].endswith("\n")
    assert LIMIT * 0.75 <= len(blocks[0]["text"]) <= LIMIT
    assert f"{len(blocks[0]['text'])} of {len(whole)} characters" in blocks[1]["text"]
    assert f"kept:1?start={len(blocks[0]['text'])}" in blocks[1]["text"]
    assert blocks[2]["type"] == "resource_link"
    assert blocks[2]["uri"] == "kept:1"
    assert kept.texts == [(whole, "text/plain")]


def test_a_client_that_knows_no_links_gets_the_note_alone() -> None:
    blocks = shape({"content": [text("x" * 2000)]}, TextStore(), links=False)["content"]

    assert [block["type"] for block in blocks] == ["text", "text"]


def test_images_between_long_texts_stay() -> None:
    kept = TextStore()

    blocks = shape({"content": [text("a" * 600), IMAGE, text("b" * 600), IMAGE, text("c" * 600)]}, kept)["content"]

    assert [block["type"] for block in blocks] == ["text", "image", "text", "image", "text", "resource_link"]
    assert blocks[0]["text"] == "a" * 600
    assert blocks[1] == blocks[3] == IMAGE
    assert blocks[2]["text"] == "b" * 400
    assert kept.texts[0][0] == "\n".join(["a" * 600, "b" * 600, "c" * 600])


def test_the_text_of_an_embedded_resource_is_cut_too() -> None:
    resource = {"type": "resource", "resource": {"uri": "file:///a", "text": "x" * 5000, "mimeType": "text/x"}}

    block = shape({"content": [resource]}, TextStore())["content"][0]

    assert block["resource"]["text"] == "x" * LIMIT
    assert block["resource"]["uri"] == "file:///a"


def test_no_character_is_torn() -> None:
    block = shape({"content": [text("\u65e5\u672c" * 2000)]}, TextStore())["content"][0]

    assert set(block["text"]) == {"\u65e5", "\u672c"}
    assert LIMIT - 3 <= len(block["text"].encode()) <= LIMIT


LONG: Json = {"rows": [{"n": n} for n in range(500)]}


def test_structured_content_that_repeats_a_cut_text_is_left_out() -> None:
    kept = TextStore()

    found = shape({"content": [text(json.dumps(LONG, indent=2))], "structuredContent": LONG}, kept)

    assert "structuredContent" not in found
    assert len(kept.texts) == 1
    assert json.loads(kept.texts[0][0]) == LONG
    assert kept.texts[0][1] == "application/json"


def test_structured_content_that_says_more_than_the_text_is_kept_by_itself() -> None:
    kept = TextStore()

    found = shape({"content": [text("500 rows")], "structuredContent": LONG}, kept)

    assert "structuredContent" not in found
    assert found["content"][0] == text("500 rows")
    assert "kept:1" in found["content"][1]["text"]
    assert json.loads(kept.texts[0][0]) == LONG


def test_structured_content_alone_is_shown_as_far_as_it_fits() -> None:
    found = shape({"structuredContent": LONG}, TextStore())

    assert found["content"][0]["text"].startswith('{"rows": [')
    assert len(found["content"][0]["text"]) <= LIMIT


def test_structured_content_that_a_schema_promises_stays() -> None:
    found = shape({"content": [text("x" * 2000)], "structuredContent": LONG}, TextStore(), keeps_structure=True)

    assert found["structuredContent"] == LONG
    assert len(found["content"][0]["text"]) == LIMIT


def test_compact_takes_the_white_space_out_of_json_only() -> None:
    pretty = '{\n  "a": 1.50,\n  "b": "x y"\n}'
    came = raw({"content": [text(pretty), text("{ not json")]})

    found = results.shape(came, answers(compact=True), TextStore(), links=True, keeps_structure=False)

    assert json.loads(bytes(found))["content"] == [text('{"a":1.50,"b":"x y"}'), text("{ not json")]


def test_compact_may_save_a_text_from_being_cut() -> None:
    kept = TextStore()
    wide = {"a": [1] * 200}

    found = shape({"content": [text(json.dumps(wide, indent=8))]}, kept, compact=True)

    assert json.loads(found["content"][0]["text"]) == wide
    assert kept.texts == []


@examples(100)
@given(st.lists(st.text(max_size=800), max_size=6))
def test_whatever_the_texts_nothing_is_lost_and_the_limit_holds(texts: list[str]) -> None:
    kept = TextStore()
    result = {"content": [text(each) for each in texts]}

    blocks = shape(result, kept, links=False)["content"]

    if not kept.texts:
        assert blocks == result["content"]
        return
    shown = [block["text"] for block in blocks[:-1]]
    assert sum(len(each.encode()) for each in shown) <= LIMIT
    assert kept.texts[0][0] == "\n".join(texts)
    assert "\n".join(texts).startswith("\n".join(shown))


# --- select ----------------------------------------------------------------------------------------------


def select(result: Json, path: str, kept: TextStore | None = None) -> dict[str, Json]:
    return json.loads(bytes(results.select(raw(result), path, kept or TextStore())))  # type: ignore[no-any-return]


ROWS = {"rows": [{"id": 1, "name": "a"}, {"id": 2, "name": "b"}]}


@pytest.mark.parametrize(
    "result",
    [
        {"content": [text("two rows")], "structuredContent": ROWS},
        {"content": [text(json.dumps(ROWS, indent=2))]},
    ],
    ids=["structured", "text"],
)
def test_a_path_selects_from_structured_content_else_from_text_that_is_json(result: Json) -> None:
    assert select({**result, "_meta": {"a": 1}}, "$.rows[*].name") == {
        "content": [text('{"selected":["a","b"]}')],
        "_meta": {"a": 1},
    }
    assert select(result, "$.rows[0].id")["content"] == [text('{"selected":1}')]


def test_several_texts_of_json_are_a_list() -> None:
    assert select({"content": [text('{"a":1}'), text('{"a":2}')]}, "$[*].a")["content"] == [
        text('{"selected":[1,2]}')
    ]


def test_images_stay_with_the_selected_values() -> None:
    assert select({"content": [IMAGE, text('{"a":1}')]}, "$.a")["content"] == [text('{"selected":1}'), IMAGE]


def test_a_bad_path_is_told_with_the_shape_of_the_data() -> None:
    kept = TextStore()

    found = select({"structuredContent": ROWS}, "$.[", kept)

    assert found["isError"] is True
    for words in ("`$.[`", "the tool ran", '"rows": [2 of {"id": number, "name": string}]', "kept:1"):
        assert words in found["content"][0]["text"]
    assert json.loads(kept.texts[0][0]) == ROWS


def test_no_match_is_told_with_the_shape_of_the_data_and_is_no_error() -> None:
    found = select({"structuredContent": ROWS}, "$.row")

    assert "isError" not in found
    for words in ("nothing matches `$.row`", '"rows": [2 of'):
        assert words in found["content"][0]["text"]


@pytest.mark.parametrize("blocks", [[text("plain words")], [IMAGE], [text("{}"), text("words")]], ids=len)
def test_a_result_that_is_not_json_comes_whole_with_a_remark_and_is_no_error(blocks: list[Json]) -> None:
    kept = TextStore()

    found = select({"content": blocks}, "$.a", kept)

    assert "isError" not in found
    assert found["content"][:-1] == blocks
    assert "not JSON" in found["content"][-1]["text"]
    assert kept.texts == []


def test_a_failure_of_the_tool_passes_as_it_is() -> None:
    came = raw({"content": [text("broken")], "isError": True})

    assert results.select(came, "$.a", TextStore()) is came
