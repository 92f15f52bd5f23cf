"""Names that are not plain words: no terminal acts on them, and commands that hints suggest can be pasted."""

from __future__ import annotations

import re
import shlex

import pytest

from tests.cli.commands import CliRunner
from tests.program import full

END_OF_INPUT = b"\x04"
SPACED = "my group"


@pytest.mark.posix_only("Windows has no such names")
def test_the_greeting_on_a_terminal_shows_a_hostile_directory_by_its_escapes(cli: CliRunner) -> None:
    folder = cli.folder / "a\x1b[31mb\x1b]0;title\x07"
    folder.mkdir()
    inside = CliRunner(folder)
    inside.configure({})
    done = inside.run_on_terminal(typed=END_OF_INPUT)
    assert done.code == 0
    assert "dynamic-mcp is an MCP server" in done.out
    assert "\x1b" not in done.out
    assert "\x07" not in done.out


@pytest.mark.parametrize(
    ("args", "suggested"),
    [
        (("call", SPACED, "nothing"), ["tools", SPACED]),
        (("prompt", SPACED, "nothing"), ["prompts", SPACED]),
        (("tools", "off now"), ["enable", "off now"]),
        (("add", "one more", "--", "true"), ["doctor", "one more"]),
    ],
)
def test_a_suggested_command_quotes_what_a_shell_would_split(
    cli: CliRunner, args: tuple[str, ...], suggested: list[str]
) -> None:
    cli.configure({SPACED: full(), "off now": full(enabled=False)})
    said = cli.run(*args).err
    commands = [shlex.split(each) for each in re.findall(r"`(dynamic-mcp [^`]*)`", said)]
    assert ["dynamic-mcp", *suggested] in [each[: len(suggested) + 1] for each in commands]


def test_a_login_whose_header_lacks_its_variable_is_not_called_authorized(cli: CliRunner) -> None:
    headers = {"Authorization": "Bearer ${NOT_SET_ANYWHERE}"}
    cli.configure({"far": {"url": "https://127.0.0.1:9/mcp", "headers": headers}})
    for args in ((), ("far",)):
        done = cli.run("auth", "status", *args)
        assert done.code == 4
        assert "NOT_SET_ANYWHERE" in done.json[0]["state"]
        assert "is not set" in done.json[0]["state"]
    assert cli.run("auth", "status", NOT_SET_ANYWHERE="token").json[0]["state"] == "authorized by the config"


def test_no_group_is_said_to_be_closed_that_was_never_opened(cli: CliRunner) -> None:
    cli.run("tools", "full", "--detail", "names")  # its catalog is known from here on, so that nothing connects
    done = cli.run(str(cli.config), stdin='{"jsonrpc":"2.0","id":1,"method":"ping"}\n')
    assert done.json["result"] == {}
    assert "group full" not in done.err
