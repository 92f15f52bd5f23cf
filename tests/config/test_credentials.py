"""Secrets that a service manager provides as files: `${credential:NAME}`."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import pytest

from dynamic_mcp.config.needs import find_required_variables
from dynamic_mcp.config.read import read_all
from dynamic_mcp.config.resolved import Broken, Program
from dynamic_mcp.config.substitute import Expansion, expand, find_credentials
from tests.config.fixtures import ReadConfig


@pytest.fixture
def secrets(tmp_path: Path) -> dict[str, str]:
    """The environment of a service, and some credentials."""
    folder = tmp_path / "credentials"
    folder.mkdir()
    (folder / "token").write_bytes(b"s3cret\n")
    (folder / "db.pass-1").write_bytes(b"two\nlines\r\n")
    (folder / "empty").write_bytes(b"")
    (folder / "binary").write_bytes(b"\xff\xfe")
    return {"CREDENTIALS_DIRECTORY": str(folder)}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("${credential:token}", "s3cret"),
        ("Bearer ${credential:token}!", "Bearer s3cret!"),
        ("${credential:db.pass-1}", "two\nlines"),
        ("${credential:token:-other}", "s3cret"),
        ("${credential:nope:-other}", "other"),
        ("${credential:empty:-other}", "other"),
        ("${NOPE:-${credential:token}}", "s3cret"),
        ("${credential:nope:-${HOME_OF}}", "there"),
        ("$${credential:token}", "${credential:token}"),
    ],
)
def test_a_credential_is_the_content_of_its_file(secrets: dict[str, str], text: str, expected: str) -> None:
    found = expand(text, {**secrets, "HOME_OF": "there"})
    assert (found.text, found.undefined, found.failures) == (expected, (), ())


@pytest.mark.parametrize("text", ["${credential:}", "${credential:../x}", "${credential:/etc/x}", "${credential:.x}"])
def test_no_credential_is_outside_of_its_directory(secrets: dict[str, str], text: str) -> None:
    assert expand(text, secrets) == Expansion(text)


def test_without_the_variable_of_systemd_credentials_are_where_containers_have_secrets() -> None:
    assert find_credentials("x ${credential:a} ${credential:b:-} ${credential:a} ${C}", {}) == [
        Path("/run/secrets/a"),
        Path("/run/secrets/b"),
    ]


# On Windows, the words for it are those of the system.
MISSING = "" if sys.platform == "win32" else "no such file"


@pytest.mark.parametrize(("name", "why"), [("nope", f": {MISSING}"), ("binary", ": it is not UTF-8"), (".", "")])
def test_a_credential_that_cannot_be_read_is_named_with_its_file(
    read_config: ReadConfig, secrets: dict[str, str], name: str, why: str
) -> None:
    server = {"command": f"${{credential:{name}}}"}
    config = read_config({"mcpServers": {"a": server}}, **secrets)
    upstream = config.groups[0].upstream
    if why:
        assert isinstance(upstream, Broken)
        assert f"{secrets['CREDENTIALS_DIRECTORY']}{os.sep}{name}`{why}" in upstream.reason
    else:
        assert isinstance(upstream, Program)


def test_a_credential_reaches_a_server_and_is_no_variable_that_a_client_must_pass_on(
    tmp_path: Path, read_config: ReadConfig, secrets: dict[str, str]
) -> None:
    server = {"command": "x", "env": {"A": "${credential:token}", "B": "${credential:nope:-${OTHER}}"}}
    config = read_config({"mcpServers": {"a": server}}, **secrets, OTHER="o")
    program = config.groups[0].upstream
    assert isinstance(program, Program)
    assert (program.env["A"], program.env["B"]) == ("s3cret", "o")
    assert find_required_variables(tmp_path / "dynamic-mcp.json", secrets).names == ("OTHER",)


def test_a_changed_credential_is_another_version_of_the_config(tmp_path: Path, secrets: dict[str, str]) -> None:
    file = tmp_path / "dynamic-mcp.json"
    file.write_text(json.dumps({"mcpServers": {"a": {"command": "x", "env": {"A": "${credential:token}"}}}}))
    before = read_all(file, secrets)
    token = Path(secrets["CREDENTIALS_DIRECTORY"]) / "token"
    assert token in before.files
    token.write_text("rotated")
    assert read_all(file, secrets).differs_from(before)
