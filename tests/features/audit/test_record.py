"""Commands that change something write it into the audit log of their config: who, what, and no value."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from dynamic_mcp.system.os_user import os_user
from tests.cli.commands import CliRunner

pytestmark = pytest.mark.usefixtures("state")

SECRET = "s3cret-value-of-somebody"


@pytest.fixture
def audited(cli: CliRunner) -> CliRunner:
    """A config with an audit log beside it, and two servers."""
    servers = {"time": {"command": "uvx"}, "gh": {"url": "https://example.com/mcp"}}
    cli.configure(servers, settings={"audit": {"path": "audit"}, "http": {"auth": [{"kind": "bearer"}]}})
    return cli


def lines(cli: CliRunner) -> list[dict[str, Any]]:  # Any: whatever is on a line
    files = sorted((cli.folder / "audit").glob("????-??-??.jsonl"))
    return [json.loads(line) for file in files for line in file.read_text().splitlines()]


def told(cli: CliRunner) -> list[tuple[str, dict[str, Any]]]:
    return [(line["event"], line["detail"]) for line in lines(cli)]


def test_changes_of_the_config_are_recorded_by_name(audited: CliRunner) -> None:
    audited.run("add", "git", "--env", f"A={SECRET}", "--", "uvx", SECRET)
    audited.run("add", "git", "--replace", "--", "uvx")
    audited.run("disable", "git")
    audited.run("disable", "git")  # which changes nothing
    audited.run("enable", "git")
    audited.run("remove", "git")

    assert told(audited) == [
        ("config.changed", {"command": "add", "added": ["git"]}),
        ("config.changed", {"command": "add", "replaced": ["git"]}),
        ("config.changed", {"command": "disable", "disabled": ["git"]}),
        ("config.changed", {"command": "enable", "enabled": ["git"]}),
        ("config.changed", {"command": "remove", "removed": ["git"]}),
    ]
    assert SECRET not in json.dumps(lines(audited))


def test_tokens_are_recorded_by_their_ids(audited: CliRunner) -> None:
    made = audited.run("token", "create", "--as", "ci", "--role", "reader", "--json").json
    audited.run("token", "revoke", made["id"])

    first, second = lines(audited)
    assert (first["event"], second["event"]) == ("token.created", "token.revoked")
    assert (first["detail"]["id"], first["detail"]["for"]) == (made["id"], "ci")
    assert (first["issuer"], first["subject"], first["auth"]) == ("local", os_user(), "local")
    assert first["config"].endswith("dynamic-mcp.json")
    assert made["token"] not in json.dumps(lines(audited))


def test_the_environment_does_not_change_who_it_was(audited: CliRunner) -> None:
    audited.run("disable", "time", LOGNAME="somebody-else", USER="somebody-else")

    assert lines(audited)[0]["subject"] != "somebody-else"


def test_without_an_audit_log_nothing_is_written(cli: CliRunner, state: Path) -> None:
    cli.configure({"time": {"command": "uvx"}})
    cli.run("disable", "time")

    assert not list(cli.folder.glob("**/*.jsonl"))
    assert not list(state.glob("**/*.jsonl"))


def test_a_command_that_cannot_record_does_its_work_and_says_so(audited: CliRunner) -> None:
    (audited.folder / "audit").write_text("in the way")
    done = audited.run("disable", "time")

    assert done.code == 0
    assert "warning: this was not recorded in the audit log: " in done.err
    assert '"enabled"' in audited.config.read_text()
