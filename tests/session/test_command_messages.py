"""An error reaches a command through the daemon as it would reach it without."""

from __future__ import annotations

import pytest
from msgspec import Raw

from dynamic_mcp.errors import (
    Disabled,
    DynamicMcpError,
    InvalidArguments,
    LoginNeeded,
    NotFound,
    TimedOut,
    UpstreamError,
)
from dynamic_mcp.session.command_messages import decode_error, encode_error, encode_upstream_error


@pytest.mark.parametrize(
    "error",
    [
        DynamicMcpError("it broke", hint="mend it"),
        NotFound("tool", "ecko", ["echo"], hint="look again"),
        Disabled("prompts", "full"),
        InvalidArguments("not `so`"),
        LoginNeeded("guarded", "dynamic-mcp auth login guarded", why="it was declined"),
        UpstreamError("full", "it went\naway", hint="start it"),
        TimedOut("full", "it was not answered"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_an_error_keeps_its_words_its_hint_its_reason_and_its_exit_code(error: DynamicMcpError) -> None:
    relayed = decode_error(encode_error(error).error, "")

    assert str(relayed) == str(error)
    assert (relayed.message, relayed.hint, relayed.exit_code) == (error.message, error.hint, error.exit_code)
    assert getattr(relayed, "reason", None) == getattr(error, "reason", error.message)


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (b'{"code":-32000,"message":"no"}', "the server answered with error -32000: no"),
        (b'{"code":1,"message":"a","data":{"exit_code":4,"hint":"h"}}', "the server answered with error 1: a"),
        (b'"just words"', 'the server answered with error : "just words"'),
    ],
)
def test_an_error_of_a_server_is_the_servers_whatever_it_says(error: bytes, words: str) -> None:
    relayed = decode_error(encode_upstream_error(Raw(error)).error, "full")

    assert str(relayed) == f"group `full`: {words}"
    assert relayed.exit_code == UpstreamError.exit_code


def test_an_error_without_anything_beside_it_is_a_failure() -> None:
    relayed = decode_error(Raw(b'{"code":-32603,"message":"internal error of dynamic-mcp"}'), "")

    assert (str(relayed), relayed.exit_code) == ("internal error of dynamic-mcp", 1)
