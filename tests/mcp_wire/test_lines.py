"""Lines do not depend on the chunks, are limited in length, and yield their ids even if they are broken."""

from __future__ import annotations

import json

import pytest
from hypothesis import HealthCheck, example, given
from hypothesis import strategies as st

from dynamic_mcp.mcp.lines import Lines, MultilineJoiner, Oversized, find_request_id, find_response_id
from tests.examples import examples

unhurried = examples(100, suppress_health_check=[HealthCheck.too_slow])

# --- the id of a message that cannot be read -----------------------------------------------------------


@pytest.mark.parametrize(
    ("line", "id"),
    [
        pytest.param(b'{"jsonrpc":"2.0","id":7,"result":{"a":NaN', b"7", id="after jsonrpc"),
        pytest.param(b' { "jsonrpc" : "2.0" , "id" : "a-1" , "result":', b'"a-1"', id="with white space"),
        pytest.param(b'{"id":-3,"result":NaN}', b"-3", id="first"),
        pytest.param(b'{"result":{"a":NaN},"jsonrpc":"2.0","id":7}\r', b"7", id="last, after jsonrpc"),
        pytest.param(b'{"result":{"a":NaN,"id":7}}', None, id="in a nested object"),
        pytest.param(b'{"result":{"a":NaN,"id":7}', None, id="in a nested object, at the very end"),
        pytest.param(b'{"a":1,"id":7,"result":NaN}', None, id="after something else"),
        pytest.param(b'{"jsonrpc":"2.0","id":7', None, id="cut off, so that it may have more digits"),
        pytest.param(b'{"jsonrpc":"2.0","id":null,"result":NaN}', None, id="null"),
        pytest.param(b"listening on port 7", None, id="a banner"),
    ],
)
def test_the_id_of_a_broken_message_is_found_where_writers_put_it(line: bytes, id: bytes | None) -> None:
    found = find_response_id(line)

    assert (None if found is None else bytes(found)) == id


# --- lines ---------------------------------------------------------------------------------------------


def _feed_all(lines: Lines, chunks: list[bytes]) -> list[bytes]:
    cut = [line for chunk in chunks for line in lines.feed(chunk)]
    return [*cut, lines.take_rest()]


@unhurried
@given(st.lists(st.text(alphabet="ab\r\n", max_size=30).map(str.encode), max_size=8), st.integers(1, 20))
@example([b"aaaa", b"aaaa\nbb\nb"], 3)
def test_any_split_of_a_stream_gives_the_same_lines_in_order(chunks: list[bytes], limit: int) -> None:
    whole = b"".join(chunks).split(b"\n")

    lines = _feed_all(Lines(limit), chunks)

    assert [line.size if isinstance(line, Oversized) else line for line in lines] == [
        len(line) if len(line) > limit else line for line in whole
    ]


@pytest.mark.parametrize("chunk_size", [1, 7, 4096, 65_536, 1_000_000])
def test_an_oversized_line_shows_its_ends_however_it_is_cut(chunk_size: int) -> None:
    long = b'{"jsonrpc":"2.0","id":41,' + b"x" * 300_000 + b',"jsonrpc":"2.0","id":42}'
    stream = b'{"id":1}\n' + long + b'\n{"id":2}\n'

    lines = _feed_all(
        Lines(limit=100_000), [stream[at : at + chunk_size] for at in range(0, len(stream), chunk_size)]
    )

    assert [lines[0], *lines[2:]] == [b'{"id":1}', b'{"id":2}', b""]
    cut = lines[1]
    assert isinstance(cut, Oversized)
    assert cut.size == len(long)
    assert cut.startswith(long[:100])
    assert cut.endswith(long[-100:])
    assert len(cut) < 10_000


def test_a_line_that_never_ends_is_not_kept() -> None:
    lines = Lines(limit=1000)

    for _ in range(1000):
        assert lines.feed(b"x" * 1000) == []

    rest = lines.take_rest()
    assert isinstance(rest, Oversized)
    assert rest.size == 1_000_000
    assert len(rest) < 10_000


def test_a_line_of_just_the_bound_passes() -> None:
    lines = Lines(limit=5)

    assert _feed_all(lines, [b"12345\n123", b"45\n12345"]) == [b"12345", b"12345", b"12345"]


# --- messages over several lines -----------------------------------------------------------------------


def test_a_pretty_printed_message_is_one_message() -> None:
    message = {"jsonrpc": "2.0", "id": 1, "result": {"list": [{"a": {}}, 2], "empty": []}}
    pretty = MultilineJoiner()

    fed = [pretty.feed(line) for line in json.dumps(message, indent=2).replace("\n", "\r\n").encode().split(b"\n")]

    assert not any(fed[:-1])
    assert json.loads(fed[-1]) == message


def test_plain_lines_pass_and_blank_ones_do_not() -> None:
    pretty = MultilineJoiner()

    fed = [pretty.feed(line) for line in (b'{"id":1}', b"", b" \r", b"banner", b'{"id":2}\r')]

    assert [line for line in fed if line] == [b'{"id":1}', b"banner", b'{"id":2}\r']


def test_a_stray_brace_does_not_swallow_the_messages_after_it() -> None:
    pretty = MultilineJoiner()

    assert [pretty.feed(line) for line in (b"{", b'{"id":1}', b'{"id":2}')] == [b"", b'{"id":1}', b'{"id":2}']


def test_a_brace_without_an_end_is_given_up_at_the_limit() -> None:
    pretty = MultilineJoiner(limit=100)
    pretty.feed(b"{")

    fed = [pretty.feed(b"  noise that goes on and on") for _ in range(6)]

    assert any(fed)
    assert pretty.feed(b"banner") == b"banner"


# --- whose line it is ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("line", "id"),
    [
        (b'{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"x":NaN', b"7"),
        (b'{"jsonrpc":"2.0","method":"tools/call","id":"a","params":', b'"a"'),
        (b'{"method":"tools/call","params":{"x":NaN},"jsonrpc":"2.0","id":7}', b"7"),
        (b'{"jsonrpc":"2.0","id":7,"result":{"method":"x"', None),
    ],
)
def test_the_id_of_a_broken_request_is_not_taken_for_that_of_an_answer(line: bytes, id: bytes | None) -> None:
    found = find_request_id(line)

    assert (None if found is None else bytes(found)) == id
    assert (find_response_id(line) is None) == (id is not None)
