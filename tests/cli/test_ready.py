"""`dynamic-mcp ready`: whether tools could be called, by exit codes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from dynamic_mcp.observe.proxies import GroupStatus, ProxyStatus
from tests.cli.commands import CliRunner
from tests.cli.test_status import publish
from tests.program import full, odd, with_noted_starts

ACCESS = {
    "roles": {"few": [{"tools": ["*"]}, {"id": "no-crash", "tools": ["crash"], "effect": "deny"}]},
    "people": {"local": ["few"]},
}


def ready(cli: CliRunner, *targets: str, code: int) -> dict[str, Any]:
    """Return why each target is not ready; empty if it is."""
    done = cli.run("ready", *targets)
    assert done.code == code, done.out + done.err
    found = done.json
    assert [each["ready"] for each in found] == [each["why"] == "" for each in found]
    return {each["target"]: each["why"] for each in found}


@pytest.fixture
def starts(cli: CliRunner, tmp_path: Path) -> Path:
    """A file with a line for each start of the server; the access rules of its config deny one of its tools."""
    file = tmp_path / "starts"
    servers = {"full": with_noted_starts(full(approve=["sample"], tools={"exclude": ["plain"]}), file), "off": odd()}
    cli.configure(servers, settings={"access": ACCESS})
    return file


def test_without_asking_a_server_what_is_not_known_is_not_ready(cli: CliRunner, starts: Path) -> None:
    found = ready(cli, "full/echo", "full", code=5)

    assert found == dict.fromkeys(("full/echo", "full"), "its tools are not known yet; `--live` asks the server")
    assert not starts.exists()


def test_what_is_known_from_before_is_enough(cli: CliRunner, starts: Path) -> None:
    ready(cli, "full/echo", "--live", code=0)
    before = starts.read_text()

    assert ready(cli, "full/echo", "full", code=0) == {"full/echo": "", "full": ""}
    assert starts.read_text() == before


@pytest.mark.parametrize(
    ("target", "code", "why"),
    [
        ("full/ecko", 2, "no tool of group `full` is named `ecko`; did you mean `echo`"),
        ("ful/echo", 2, "no group is named `ful`"),
        ("full/plain", 2, "the config hides the tool `plain`"),
        ("full/crash", 3, "the access rules do not allow it: no-crash"),
        ("full/sample", 3, "a person must approve it"),
    ],
)
def test_the_code_and_the_words_say_why_not(cli: CliRunner, starts: Path, target: str, code: int, why: str) -> None:
    ready(cli, "full", "--live", code=0)

    found = ready(cli, "full/echo", target, code=code)

    assert found["full/echo"] == ""
    assert why in found[target]


def test_a_header_without_its_variable_needs_a_login(cli: CliRunner) -> None:
    cli.configure({"far": {"url": "http://127.0.0.1:9/mcp", "headers": {"Authorization": "${NOPE_TOKEN}"}}})
    assert "`${NOPE_TOKEN}` is not set" in ready(cli, "far/x", code=4)["far/x"]


def test_a_server_to_log_in_to_needs_a_login(cli: CliRunner) -> None:
    cli.configure({"far": {"url": "http://127.0.0.1:9/mcp"}})
    assert ready(cli, "far/x", code=4) == {"far/x": "not logged in"}


def test_a_server_that_does_not_start_is_down_when_it_is_asked(cli: CliRunner) -> None:
    cli.configure({"broken": odd("tells", "no licence", retry={"attempts": 1})})
    assert "no licence" in ready(cli, "broken", "--live", code=5)["broken"]


def test_the_code_is_that_of_the_first_that_is_not_ready(cli: CliRunner, starts: Path) -> None:
    ready(cli, "full", "--live", code=0)
    ready(cli, "full/echo", "full/crash", "nowhere/x", code=3)
    ready(cli, "nowhere/x", "full/crash", code=2)


@pytest.mark.parametrize(
    ("link", "code"), [("failed", 5), ("needs a login", 4), ("connected", 0), ("not connected", 0)]
)
def test_what_a_running_proxy_says_of_its_server_counts(
    cli: CliRunner, starts: Path, state: Path, link: str, code: int
) -> None:
    ready(cli, "full", "--live", code=0)
    group = GroupStatus(name="full", state=link, reason="the server exited with code 3" if code == 5 else "")
    publish(state, ProxyStatus(config=str(cli.config), groups=[group]))

    found = ready(cli, "full/echo", code=code)

    assert ("exited with code 3" in found["full/echo"]) == (code == 5)
