"""Whatever a client writes, its request has one line, and the log does not stand in the way of the answer."""

from __future__ import annotations

import asyncio
import json
import tempfile
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from tests.examples import examples
from tests.features.audit.audited import Json, audited

TEXTS = st.text(max_size=10) | st.sampled_from(
    ["up", "get_thing", "up__get_thing", "call_dynamic_tool", "get_dynamic_tools", "file:///a?token=x", "\x00\n\x1b"]
)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS | st.just("password"), inner, max_size=3),
    max_leaves=8,
)
MEMBERS = ("name", "uri", "arguments", "group", "args", "_meta", "traceparent", "task")
PARAMS = st.dictionaries(
    st.sampled_from(MEMBERS),
    VALUES | TEXTS | st.dictionaries(st.sampled_from(MEMBERS), VALUES | TEXTS, max_size=4),
    max_size=5,
)
METHODS = st.sampled_from(["tools/call", "prompts/get", "resources/read"])


async def ask(directory: Path, requests: list[tuple[str, Json]]) -> int:
    """Make requests, each of which is answered otherwise than with a bug; return how many lines there are."""
    async with audited(directory, arguments="redacted") as on:
        client = await on.join()
        for method, params in requests:
            answer = await client.request(method, params)
            assert "Traceback" not in json.dumps(answer)
            assert answer.get("error", {}).get("code") != -32603, answer
        return len(on.lines())


@examples(60)
@given(st.lists(st.tuples(METHODS, PARAMS), min_size=1, max_size=20))
def test_each_request_has_an_answer_and_a_line(requests: list[tuple[str, Json]]) -> None:
    with tempfile.TemporaryDirectory() as directory:
        assert asyncio.run(ask(Path(directory), requests)) == len(requests)
