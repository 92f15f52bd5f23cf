"""A model with a shell has no way past the audit log, an approval, or the access rules of the local user."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.attacks.target import Target, office
from tests.attacks.wire import Json

USES = ("call", "read", "prompt")
ROLES: Json = {
    "user": [
        {"tools": ["query", "move_file", "write_note"]},
        {"prompts": ["*"]},
        {"resources": ["file:///srv/docs/*"]},
    ]
}


@pytest.fixture
def shell(tmp_path: Path) -> Target:
    """A config, and commands on it; nothing serves it."""
    return configure(tmp_path)


def configure(folder: Path, **audit: str) -> Target:
    target = Target(folder, 0)
    settings = {
        "audit": {"path": str(folder / "audit"), **audit},
        "access": {"default": "deny", "roles": ROLES, "people": {"local": ["user"]}},
    }
    servers = {"office": office(folder, approve=["move_file"])}
    target.config.write_text(json.dumps({"mcpServers": servers, "settings": settings}))
    return target


def recorded(target: Target) -> list[tuple[str, str]]:
    """Return the event and the outcome of each use in the audit log, which says nothing of a success."""
    texts = [file.read_text() for file in (target.folder / "audit").glob("*.jsonl")]
    lines = [json.loads(line) for text in texts for line in text.splitlines()]
    return [(each["event"], each.get("outcome", "success")) for each in lines if each["event"] in USES]


ALLOWED = {
    "a call": ["call", "office", "query", "database=stage"],
    "a call alone": ["call", "--alone", "office", "query", "database=stage"],
    "a read": ["read", "file:///srv/docs/readme.txt"],
    "a prompt": ["prompt", "office", "greet"],
}
REFUSED = {
    "a tool that is denied": ["call", "office", "delete_everything"],
    "a tool that needs an approval": ["call", "--alone", "office", "move_file"],
    "a resource that is denied": ["read", "file:///srv/secret/alpha.key"],
    "a way out of what is allowed": ["read", "file:///srv/docs/.\t./secret/alpha.key"],
}


@pytest.mark.parametrize("words", ALLOWED.values(), ids=ALLOWED)
def test_what_a_command_does_is_recorded(shell: Target, words: list[str]) -> None:
    assert shell.run(*words).returncode == 0
    assert recorded(shell) == [(words[0], "success")]


@pytest.mark.parametrize("words", REFUSED.values(), ids=REFUSED)
def test_what_a_command_is_refused_is_not_sent_and_is_recorded(shell: Target, words: list[str]) -> None:
    done = shell.run(*words)
    assert done.returncode != 0
    assert "KEY-OF" not in done.stdout
    assert shell.journal() == []
    assert [event for event, outcome in recorded(shell) if outcome != "success"] == [words[0]]


def test_a_command_writes_nothing_where_it_cannot_be_recorded(tmp_path: Path) -> None:
    shell = configure(tmp_path, on_failure="stop-writes")
    (tmp_path / "audit").write_text("in the way")
    assert shell.run("call", "office", "write_note").returncode != 0
    assert shell.run("call", "--alone", "office", "write_note").returncode != 0
    assert shell.journal() == []


def test_the_environment_turns_no_recording_off(shell: Target) -> None:
    shell.environment |= {"DYNAMIC_MCP_AUDIT": "off", "DYNAMIC_MCP_NO_AUDIT": "1", "NO_AUDIT": "1"}
    assert shell.run(*ALLOWED["a call"]).returncode == 0
    assert recorded(shell) == [("call", "success")]
