"""Commands that ask servers are recorded like every other client, whether a daemon runs or not."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from typing import Any

import pytest

from tests.cli.commands import CliRunner
from tests.program import full
from tests.terminal import ENTER, terminal

pytestmark = pytest.mark.usefixtures("state", "_own_cache")


@pytest.fixture
def _own_cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


@pytest.fixture
def audited(cli: CliRunner) -> CliRunner:
    """A config with an audit log beside it; `record` needs approval."""
    configure(cli)
    return cli


def configure(cli: CliRunner, **audit: object) -> None:
    cli.configure({"full": full(approve=["record"])}, settings={"audit": {"path": "audit", **audit}})


def lines(cli: CliRunner) -> list[dict[str, Any]]:  # Any: whatever is on a line
    files = sorted((cli.folder / "audit").glob("????-??-??.jsonl"))
    return [json.loads(line) for file in files for line in file.read_text().splitlines()]


def uses(cli: CliRunner) -> list[dict[str, Any]]:  # Any: as above
    return [line for line in lines(cli) if line["event"] in ("call", "read", "prompt")]


@pytest.mark.parametrize(
    ("args", "event", "name"),
    [
        (("call", "full", "echo", "text=a"), "call", "echo"),
        (("call", "--alone", "full", "echo", "text=a"), "call", "echo"),
        (("read", "full://text"), "read", "full://text"),
        (("prompt", "full", "greet", "city=Oslo"), "prompt", "greet"),
    ],
)
def test_what_a_command_asks_of_a_server_is_recorded_with_the_command(
    audited: CliRunner, args: tuple[str, ...], event: str, name: str
) -> None:
    assert audited.run(*args).code == 0
    (line,) = uses(audited)
    assert (line["event"], line["name"]) == (event, name)
    assert (line["issuer"], line["subject"], line["client"]) == ("local", "user", f"dynamic-mcp {args[0]}")
    assert [each["event"] for each in lines(audited)][-1] == "session.closed"


@pytest.mark.parametrize(
    ("args", "outcome", "error"),
    [
        (("call", "full", "fail"), "failure", "tool_error"),
        (("call", "full", "ecko", "text=a"), "failure", "NotFound"),
        (("call", "full", "record"), "denied", "ApprovalNeeded"),
        (("prompt", "full", "no_such"), "failure", "NotFound"),
    ],
)
def test_what_comes_to_nothing_is_recorded_too(
    audited: CliRunner, args: tuple[str, ...], outcome: str, error: str
) -> None:
    assert audited.run(*args).code != 0
    (line,) = uses(audited)
    assert (line["outcome"], line["error"]) == (outcome, error)


def test_a_command_that_lists_tools_is_recorded_as_a_session(audited: CliRunner) -> None:
    assert audited.run("tools", "full").code == 0
    sessions = [line["client"] for line in lines(audited) if line["event"] == "session.opened"]
    assert (sessions, uses(audited)) == (["dynamic-mcp tools"], [])


def test_a_call_that_cannot_be_recorded_is_refused_where_the_config_says_so(cli: CliRunner) -> None:
    configure(cli, on_failure="stop-writes")
    assert cli.run("call", "full", "echo", "text=before").code == 0
    shutil.rmtree(cli.folder / "audit")
    (cli.folder / "audit").write_text("in the way")

    refused = cli.run("call", "full", "echo", "text=after")

    assert (refused.code != 0, refused.out) == (True, "")
    assert "the audit log in" in refused.err
    assert "nothing was sent" in refused.err
    assert cli.run("read", "full://text").code == 0  # reads go on


def test_without_a_terminal_the_message_says_how_to_go_on(audited: CliRunner) -> None:
    done = audited.run("call", "full", "record", "a=1")
    assert (done.code, done.out) == (3, "")
    assert "error: `record` of group `full` needs approval, and this client cannot ask a person" in done.err
    assert "hint: run it on a terminal, or make the call from your AI tool, and answer it with" in done.err


def test_a_person_at_the_terminal_is_asked_and_sees_the_arguments(audited: CliRunner) -> None:
    with terminal(audited.folder, "call", "full", "record", "message=delete\x1b[2K it") as person:
        person.shows("Allow tool `record` of `full`?")
        person.shows("delete\\u001b[2K it")
        person.shows("your answer (n or y")
        person.types(b"y" + ENTER)
        person.shows("tools/call")
        assert person.ends() == 0
    (line,) = uses(audited)
    assert (line.get("outcome", "success"), line["approved_by"]) == ("success", "user")


def test_a_person_at_the_terminal_can_deny_a_call(audited: CliRunner) -> None:
    with terminal(audited.folder, "call", "full", "record", "a=1") as person:
        person.shows("your answer (n or y")
        person.types(b"n" + ENTER)
        person.shows("was not approved: the user denied it; nothing was sent")
        assert person.ends() == 3


def test_what_was_typed_before_the_question_is_no_answer(audited: CliRunner) -> None:
    with terminal(audited.folder, "call", "full", "record", "a=1") as person:
        person.types(b"y" + ENTER)
        person.shows("your answer (n or y")
        person.types(b"n" + ENTER)
        person.shows("the user denied it")
        assert person.ends() == 3
    assert re.search("ApprovalDenied", json.dumps(uses(audited)))


def test_a_config_whose_approvals_wait_in_the_queue_alone_does_not_ask_on_the_terminal(cli: CliRunner) -> None:
    cli.configure({"full": full(approve=["record"])}, settings={"approval": {"channels": ["queue"]}})
    with terminal(cli.folder, "call", "full", "record", "a=1") as person:
        person.shows("needs approval")
        person.shows("hint: make the call from your AI tool")
        assert person.ends() == 3
