"""Frames lose nothing on the way through, and no input breaks the parser."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable

import pytest
from hypothesis import HealthCheck, example, given
from hypothesis import strategies as st
from msgspec import Raw

from dynamic_mcp.errors import INVALID_REQUEST, PARSE_ERROR
from dynamic_mcp.mcp import wire
from dynamic_mcp.mcp.wire import Malformed
from tests.examples import examples

unhurried = examples(100, suppress_health_check=[HealthCheck.too_slow])

# --- JSON as texts, since parsing and writing it again would lose what must not be lost ----------------

_SPACE = st.text(alphabet=" \t\r", max_size=2)
_NUMBERS = st.one_of(
    st.integers().map(str),
    st.integers(min_value=10**39, max_value=10**60).map(str),
    st.sampled_from(["-0", "0.0", "1.50", "1e999", "-2.5E-7", "0.1000000000000000055511151231257827", "1E+2"]),
)
_CHARACTERS = st.characters(exclude_categories=["Cs", "Cc"], exclude_characters='"\\').map(str)
_ESCAPES = st.sampled_from([r"\n", r"\"", r"\\", r"\/", r"\u0041", r"\u00e9", r"\ud83d\ude00", r"\u0000", r"\u007F"])
_SURROGATES = st.sampled_from([r"\ud800", r"\uDFFF", r"\udc00\ud800"])


def _strings(*pieces: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    return st.lists(st.one_of(*pieces), max_size=4).map(lambda parts: '"' + "".join(parts) + '"')


def _array(draw: st.DrawFn, values: st.SearchStrategy[str]) -> str:
    items = draw(st.lists(values, max_size=3))
    return "[" + draw(_SPACE) + ",".join(draw(_SPACE) + item + draw(_SPACE) for item in items) + "]"


def _object(draw: st.DrawFn, values: st.SearchStrategy[str]) -> str:
    # few keys, so that some come twice
    keys = st.one_of(st.sampled_from(['"a"', '"b"', '"id"', '"method"']), _strings(_CHARACTERS, _ESCAPES))
    items = draw(st.lists(st.tuples(keys, values), max_size=3))
    spaced = (f"{draw(_SPACE)}{key}{draw(_SPACE)}:{draw(_SPACE)}{value}{draw(_SPACE)}" for key, value in items)
    return "{" + draw(_SPACE) + ",".join(spaced) + "}"


@st.composite
def _containers(draw: st.DrawFn, values: st.SearchStrategy[str]) -> str:
    kind: Callable[[st.DrawFn, st.SearchStrategy[str]], str] = draw(st.sampled_from([_array, _object]))
    return kind(draw, values)


def _json_texts(*pieces: st.SearchStrategy[str]) -> st.SearchStrategy[bytes]:
    leaves = st.one_of(st.sampled_from(["null", "true", "false"]), _NUMBERS, _strings(_CHARACTERS, *pieces))
    return st.recursive(leaves, _containers, max_leaves=12).map(str.encode)


json_texts = _json_texts(_ESCAPES, _SURROGATES)
json_texts_without_lone_surrogates = _json_texts(_ESCAPES)
odd_bytes = st.one_of(
    st.binary(max_size=60),
    st.text(alphabet='{}[]",:\\0129.eE-+ \tntrufalsNI\ufeffd8é', max_size=60).map(str.encode),
    st.tuples(json_texts, st.integers(0, 40), st.binary(max_size=3)).map(
        lambda t: t[0][: t[1]] + t[2] + t[0][t[1] :]
    ),
)

# --- reading -------------------------------------------------------------------------------------------


@unhurried
@given(json_texts, st.sampled_from([b"7", b'"a b"', b"-1.50"]))
def test_a_result_passes_byte_for_byte(payload: bytes, id: bytes) -> None:
    arrived = b'{"jsonrpc": "2.0", "id": 12 ,"result": ' + payload + b"}\r"

    sent = wire.answer_line(Raw(id), wire.parse(arrived))

    assert sent == b'{"jsonrpc":"2.0","id":' + id + b',"result":' + payload + b"}\n"


@unhurried
@given(json_texts)
def test_an_error_passes_byte_for_byte(payload: bytes) -> None:
    frame = wire.parse(b'{"error":' + payload + b',"id":1,"jsonrpc":"2.0"}')

    assert wire.answer_line(Raw(b"2"), frame) == b'{"jsonrpc":"2.0","id":2,"error":' + payload + b"}\n"


@unhurried
@given(json_texts)
def test_params_pass_byte_for_byte(payload: bytes) -> None:
    frame = wire.parse(b'{"id":"x","method":"tools/call","params":' + payload + b"}")

    line = wire.request_line(3, frame.method, frame.params)

    assert line == b'{"jsonrpc":"2.0","id":3,"method":"tools/call","params":' + payload + b"}\n"


@unhurried
@given(st.dictionaries(st.text(st.characters(exclude_categories=["Cs"]), max_size=5), json_texts, max_size=4))
def test_members_are_the_bytes_that_arrived(values: dict[str, bytes]) -> None:
    text = b" {" + b" ,".join(json.dumps(key).encode() + b" :" + value for key, value in values.items()) + b"} "

    found = wire.members(text)

    assert {key: bytes(value) for key, value in found.items()} == values
    assert list(found) == list(values)


@unhurried
@given(st.lists(json_texts, max_size=4))
def test_elements_are_the_bytes_that_arrived(values: list[bytes]) -> None:
    text = b" [" + b" , ".join(values) + b"] "

    assert [bytes(value) for value in wire.elements(text)] == values


def _without_white_space(text: bytes) -> bytes:
    kept, inside, escaped = bytearray(), False, False
    for byte in text:
        if inside or byte not in b" \t\r\n":
            kept.append(byte)
        inside = inside != (byte == ord('"') and not escaped)
        escaped = inside and byte == ord("\\") and not escaped
    return bytes(kept)


@unhurried
@given(json_texts_without_lone_surrogates)
def test_compact_takes_out_white_space_and_nothing_else(text: bytes) -> None:
    assert wire.compact(Raw(text)) == _without_white_space(text)


def test_compact_leaves_alone_what_it_cannot_read() -> None:
    text = rb'{ "a" : "\ud800" }'

    assert wire.compact(Raw(text)) in (text, _without_white_space(text))


@unhurried
@given(odd_bytes)
@example(b"")
@example(b"[")
@example(b'{"a"')
@example(b'{"a":1,')
@example(b"\xef\xbb\xbf")
@example(b'{"method":"\\ud800","x":{}')
def test_a_line_is_a_frame_of_valid_json_or_malformed(line: bytes) -> None:
    try:
        frame = wire.parse(line)
    except Malformed:
        return

    for payload in (frame.id, frame.params, frame.result, frame.error):
        if len(payload):
            json.loads(bytes(payload).decode("utf-8"), parse_int=str, parse_constant=pytest.fail)


@unhurried
@given(odd_bytes)
@example(b'{"\x80":1}')
def test_splitting_raises_nothing_but_malformed(data: bytes) -> None:
    for split in (wire.members, wire.elements):
        with contextlib.suppress(Malformed):
            split(data)


@pytest.mark.parametrize(
    "line",
    [
        pytest.param(b'\xef\xbb\xbf{"jsonrpc":"2.0","id":1,"method":"ping"}', id="after a byte order mark"),
        pytest.param(b' \t{"jsonrpc":"2.0","id":1,"method":"ping"}\r', id="with white space and CRLF"),
        pytest.param(b'{"method":"pi\\u006eg","id":1,"jsonrpc":"2.0"}', id="with an escape in the method"),
        pytest.param(b'{"jsonrpc":"2.0","id":9,"method":"x","id":1,"method":"ping"}', id="with members twice"),
    ],
)
def test_a_request_is_read(line: bytes) -> None:
    frame = wire.parse(line)

    assert (frame.jsonrpc, frame.method, bytes(frame.id)) == ("2.0", "ping", b"1")


def test_invalid_utf8_is_replaced_so_that_what_passes_on_is_valid() -> None:
    frame = wire.parse(b'{"id":1,"result":{"text":"a\xff\xc3b"}}')

    assert bytes(frame.result).decode() == '{"text":"a\ufffd\ufffdb"}'


def test_integers_of_5000_digits_pass() -> None:
    digits = b"9" * 5000

    frame = wire.parse(b'{"id":1,"result":{"n":' + digits + b',"lone":"\\ud800"},"vendor":' + digits + b"}")

    assert bytes(wire.members(frame.result)["n"]) == digits
    assert digits + b"}" in wire.answer_line(Raw(b"1"), frame)


@pytest.mark.parametrize(
    "line",
    [
        pytest.param(b'{"id":1,"result":NaN}', id="NaN"),
        pytest.param(b'{"id":1,"result":[-Infinity]}', id="infinity"),
        pytest.param(b'{"id":1,"result":{"s":"\\ud800","n":NaN}}', id="NaN after a lone surrogate"),
        pytest.param(b"[" * 200_000, id="deep arrays without an end"),
        pytest.param(b'{"id":1,"result":' + b'{"a":' * 1_000_000, id="deep objects"),
        pytest.param(b'{"id":1}{"id":2}', id="two messages in a line"),
        pytest.param(b'{"id":1,"result":{}', id="half a message"),
        pytest.param(b'{"id":1,"result":"a\tb"}', id="a control character in a string"),
        pytest.param(b"{'id':1}", id="single quotes"),
        pytest.param(b'{xid":1,"result":"\\ud800"}', id="a name that begins without a quote"),
        pytest.param(b'{"id":1,"a\tb":"\\ud800"}', id="a control character in a name"),
        pytest.param(b'{"id":1,"s":"\\ud800";"result":1}', id="no comma after a lone surrogate"),
        pytest.param(b"Server started on stdio", id="a banner"),
        pytest.param(b"", id="nothing"),
    ],
)
def test_what_is_not_json_is_refused_as_such(line: bytes) -> None:
    with pytest.raises(Malformed) as raised:
        wire.parse(line)

    assert raised.value.code == PARSE_ERROR


@pytest.mark.parametrize("line", [b"1", b'"text"', b"null", b"[]", b'[{"id":1}]'])
def test_json_that_is_no_object_is_an_invalid_request(line: bytes) -> None:
    with pytest.raises(Malformed) as raised:
        wire.parse(line)

    assert raised.value.code == INVALID_REQUEST


@pytest.mark.parametrize(
    ("id", "told"),
    [(b"4", b"4"), (b'"x"', b'"x"'), (b"-1.5", b"-1.5"), (b"{}", b"null"), (b"true", b"null"), (b"null", b"null")],
)
def test_a_method_that_is_no_string_is_refused_with_the_id_where_it_may_be_one(id: bytes, told: bytes) -> None:
    with pytest.raises(Malformed) as raised:
        wire.parse(b'{"jsonrpc":"2.0","id":' + id + b',"method":5}')

    assert raised.value.code == INVALID_REQUEST
    assert bytes(raised.value.id) == told


def test_members_of_vendors_stay_in_an_answer() -> None:
    frame = wire.parse(b'{"jsonrpc":"2.0","x-trace":{"b" : 1,"a":2},"id":1,"result":{},"y":null}')

    line = wire.answer_line(Raw(b'"c"'), frame)

    assert line == b'{"jsonrpc":"2.0","id":"c","result":{},"x-trace":{"b" : 1,"a":2},"y":null}\n'


@pytest.mark.parametrize(
    ("id", "is_one"),
    [(b"1", True), (b'""', True), (b"-1", True), (b"0.5", True)]
    + [(each, False) for each in (b"", b"null", b"true", b"[1]", b"{}")],
)
def test_an_id_is_a_string_or_a_number(id: bytes, is_one: bool) -> None:
    assert wire.is_request_id(Raw(id)) is is_one


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (b'"caf\\u00e9"', "café"),
        (b'"a\\ud800b"', "a?b"),
        (b"1", None),
        (b"null", None),
        (b'{"a":"\\ud800"}', None),
        (b"9" * 5000, None),
    ],
    ids=["escapes", "a lone surrogate", "a number", "null", "an object", "a long number"],
)
def test_text_is_the_string_or_none(data: bytes, text: str | None) -> None:
    assert wire.text(Raw(data)) == text
    assert wire.text(None) is None


@pytest.mark.parametrize(
    ("data", "value"),
    [
        (b'{"a":[1,null]}', {"a": [1, None]}),
        (b'{"a":"\\ud83d"}', {"a": "\ud83d"}),
        (b"nothing", None),
        (b"[" * 100_000, None),
        (b"9" * 5000, None),
    ],
    ids=["plain", "half a surrogate pair", "no JSON", "deep nesting", "a long number"],
)
def test_a_value_is_what_the_json_says_or_none(data: bytes, value: object) -> None:
    assert wire.value(Raw(data)) == value


# --- writing -------------------------------------------------------------------------------------------


def test_messages_of_our_own_are_one_line_of_json() -> None:
    assert wire.request_line(1, "ping") == b'{"jsonrpc":"2.0","id":1,"method":"ping"}\n'
    assert wire.notification_line("a/b", b'{"x":1}') == b'{"jsonrpc":"2.0","method":"a/b","params":{"x":1}}\n'
    assert json.loads(wire.request_line(1, 'odd "method"\n'))["method"] == 'odd "method"\n'


@pytest.mark.parametrize("count", [wire.MAX_BATCH + 1, 2_000_000])
def test_an_array_of_too_many_elements_is_no_batch(count: int) -> None:
    line = b"[" + b",".join([b"1"] * count) + b"]"

    with pytest.raises(Malformed) as raised:
        wire.batch(line)

    assert raised.value.code == INVALID_REQUEST


def test_a_batch_may_have_long_messages() -> None:
    message = b'{"id":1,"result":"' + b"," * 200_000 + b'"}'

    assert [bytes(each) for each in wire.batch(b"[" + message + b"," + message + b"]")] == [message, message]


@pytest.mark.parametrize("names", [200_000, 1])
def test_an_object_that_only_the_slow_parser_takes_has_a_bound(names: int) -> None:
    members = b",".join(b'"%d":1' % (number % names) for number in range(200_000))

    with pytest.raises(Malformed, match="more than"):
        wire.parse(b'{"id":1,"method":"\\ud800",' + members + b"}")


def test_a_batch_that_cannot_be_split_counts_as_one_message() -> None:
    assert wire.count_members(b'[{"id":1},{"id":2}]') == 2
    assert wire.count_members(b'[{"id":1},') == 1


@pytest.mark.parametrize(
    ("data", "is_certain"),
    [
        (b'{"a":1,"bc":"x"}', True),
        (b'{ "a" : {"b": ":"} }', True),
        (b'{"a":1,"a":1}', False),
        (b'{"a":{"b":1},"a":1}', False),
        (b'{"\\u003a":1,"\\u003a":1}', False),
        (b'{"":1,"":1}', False),
        (b'{"a":1,\n"a":1}', False),
        (b'{":":1}', True),
        (b'{        ":":1}', False),
    ],
)
def test_it_is_cheap_to_see_that_an_object_has_no_name_twice(data: bytes, is_certain: bool) -> None:
    assert wire.has_unique_names(wire.members(data), data) is is_certain


def test_a_batch_is_the_array_of_its_answers() -> None:
    lines = [wire.answer_line(Raw(b"1"), wire.result_frame(b"{}")), wire.notification_line("n")]

    assert wire.join_batch(lines) == b'[{"jsonrpc":"2.0","id":1,"result":{}},{"jsonrpc":"2.0","method":"n"}]\n'


def test_an_error_carries_code_message_and_data() -> None:
    line = wire.answer_line(Raw(b"1"), wire.error_frame(-32600, "no\nway", {"a": [1]}))

    assert json.loads(line)["error"] == {"code": -32600, "message": "no\nway", "data": {"a": [1]}}
    assert line.count(b"\n") == 1


@pytest.mark.parametrize(
    ("data", "name", "flat"),
    [
        (b'{"a":1,"a":1}', "a", "a"),
        (b'{"a" : 1, "b": [{"c": 2, "c" :3}]}', "c", None),
        (b'{"a":{"b":1},"c":{"b":1}}', None, None),
        (b'{"a":"\\"a\\":","b":"{\\"b\\":1,\\"b\\":2}"}', None, None),
        (b'{"\\u0061":1,"a":12345}', "a", "a"),
        (b'{"\xc3\xa4":1,"b":"\xf0\x9f\x98\x80"}', None, None),
        (b'{"n":' + b"9" * 5000 + b',"n":1}', "n", "n"),
        (b"not JSON: a: b", None, None),
    ],
)
def test_a_name_that_an_object_gives_twice_is_found(data: bytes, name: str | None, flat: str | None) -> None:
    assert wire.find_duplicate_name(data) == name
    assert wire.find_duplicate_name(data, is_flat=True) == flat
