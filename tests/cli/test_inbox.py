"""What a server reports while a command waits is shown, whatever it is: the command goes on."""

from __future__ import annotations

import io

import pytest

from dynamic_mcp.cli.inbox import Inbox
from dynamic_mcp.cli.output import Output
from dynamic_mcp.mcp import wire

LARGE = b"1" * 5000
DEEP = b"[" * 400 + b"]" * 400


def show(method: str, params: bytes) -> str:
    """Return what is shown of a notification."""
    err = io.StringIO()
    inbox = Inbox(Output(io.StringIO(), err, {}, as_json=None, is_quiet=False), lambda _: None, may_ask=False)
    inbox.receive(
        wire.parse(b'{"jsonrpc":"2.0","method":"notifications/%s","params":%s}' % (method.encode(), params))
    )
    return err.getvalue()


@pytest.mark.parametrize(
    ("params", "shown"),
    [
        (b'{"level":"warning","logger":"db","data":"slow"}', "warning db: slow\n"),
        (b'{"data":{"rows":[1,2.5,null]}}', 'info : {"rows": [1, 2.5, null]}\n'),
        (b'{"data":null}', "info : null\n"),
        (b"{}", "info : \n"),
        (b'{"level":7,"logger":[],"data":"slow"}', "info : slow\n"),
        (b'{"data":%s}' % LARGE, f"info : {LARGE.decode()}\n"),
        (b'{"data":%s}' % DEEP, f"info : {DEEP.decode()}\n"),
        (b'{"data":"\\ud800"}', "info : \\ud800\n"),
        (b"[1]", ""),
        (b'"slow"', ""),
        (b"null", ""),
    ],
)
def test_a_log_message_is_shown(params: bytes, shown: str) -> None:
    assert show("message", params) == shown


@pytest.mark.parametrize(
    ("params", "shown"),
    [
        (b'{"progress":1,"total":4,"message":"reading"}', "progress 1/4 (25%): reading\n"),
        (b'{"progress":0.5}', "progress 0.5\n"),
        (b'{"progress":1%s,"total":1}' % (b"0" * 400), f"progress 1{'0' * 400}/1\n"),
        (b'{"progress":%s}' % LARGE, "progress ?\n"),
        (b'{"progress":"half","total":[1],"message":{}}', "progress ?/?\n"),
        (b"{}", "progress ?\n"),
        (b"[1]", ""),
    ],
)
def test_progress_is_shown(params: bytes, shown: str) -> None:
    assert show("progress", params) == shown
