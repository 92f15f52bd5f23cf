"""Secrets that a program is asked for: `${op:op://vault/item/field}`."""

from __future__ import annotations

import pytest

from dynamic_mcp.config.resolved import Broken, Program, Remote
from dynamic_mcp.config.secret_programs import PRESETS, SecretLookup, TextWithSecrets, make_lookup
from tests.config.fixtures import ReadConfig, Refuse
from tests.fakes import Json

MINE = {"mine": {"command": ["ask", "--for={}"]}}


def program_of(read_config: ReadConfig, *, secrets: Json = None, **server: Json) -> Program | Broken:
    document = {"mcpServers": {"a": {"command": "a", **server}}, "settings": {"secrets": secrets or {}}}
    [group] = read_config(document, TOKEN="${op:op://from/the/environment}").groups
    assert isinstance(group.upstream, Program | Broken)
    return group.upstream


def test_reading_a_config_notes_what_to_ask_and_asks_nothing(read_config: ReadConfig) -> None:
    program = program_of(read_config, secrets=MINE, env={"A": "x ${mine:one} ${op:op://v/i/f}"}, args=["${mine:one}"])

    assert isinstance(program, Program)
    assert (program.env["A"], program.args) == ("x ${mine:one} ${op:op://v/i/f}", ("${mine:one}",))
    assert program.lookups is not None
    assert program.lookups.secrets == (
        SecretLookup("mine:one", ("ask", "--for=one")),
        SecretLookup("op:op://v/i/f", ("op", "read", "op://v/i/f")),
    )
    assert program.lookups.texts == (
        TextWithSecrets("args", 0, ("", "mine:one", "")),
        TextWithSecrets("env", "A", ("x ", "mine:one", " ", "op:op://v/i/f", "")),
    )


def test_headers_and_the_variables_of_all_servers_can_have_them(read_config: ReadConfig) -> None:
    document = {
        "mcpServers": {"far": {"url": "https://far", "headers": {"X-Key": "${pass:a/b}"}}, "near": {"command": "n"}},
        "settings": {"defaults": {"env": {"SHARED": "${NOPE:-${pass:c}}"}}},
    }
    far, near = (group.upstream for group in read_config(document).groups)

    assert isinstance(far, Remote)
    assert far.lookups is not None
    assert [each.reference for each in far.lookups.secrets] == ["pass:a/b"]
    assert isinstance(near, Program)
    assert near.lookups is not None
    assert near.lookups.texts == (TextWithSecrets("env", "SHARED", ("", "pass:c", "")),)


@pytest.mark.parametrize(
    "text",
    ["${TOKEN}", "$${op:op://v/i/f}", "${input:op}", "${env:OP}", "${op:}", "${op: x}", "${other:x}", "${Op:x}"],
)
def test_nothing_else_is_asked_for(read_config: ReadConfig, text: str) -> None:
    program = program_of(read_config, env={"A": text})

    assert isinstance(program, Program)
    assert program.lookups is None


def test_a_variable_of_the_name_of_a_program_stays_one(read_config: ReadConfig) -> None:
    program = program_of(read_config, env={"A": "${op:-default}"})

    assert isinstance(program, Program)
    assert (program.env["A"], program.lookups) == ("default", None)


@pytest.mark.parametrize("field", ["command", "cwd"])
def test_elsewhere_the_server_fails_with_the_reason(read_config: ReadConfig, field: str) -> None:
    program = program_of(read_config, **{field: "${op:op://v/i/f}"})

    assert isinstance(program, Broken)
    where = "can only be in `env`, `args`, `headers` and `query`"
    assert f"mcpServers.a.{field}: `${{op:op://v/i/f}}` {where}" in program.reason


def test_a_value_with_the_mark_of_a_reference_in_it_is_refused(read_config: ReadConfig) -> None:
    document = {"mcpServers": {"a": {"command": "a", "env": {"A": "${X}"}}}}
    [group] = read_config(document, X="\0op:op://v/i/f\0").groups

    assert isinstance(group.upstream, Broken)
    assert "NUL" in group.upstream.reason


@pytest.mark.parametrize(
    ("reference", "command"),
    [
        ("vault:secret/data/github#token", ("vault", "kv", "get", "-field=token", "secret/data/github")),
        ("vault:a#b#c", ("vault", "kv", "get", "-field=c", "a#b")),
        ("sops:s.yaml#['github']['token']", ("sops", "-d", "--extract", "['github']['token']", "s.yaml")),
        ("pass:work/github", ("pass", "show", "work/github")),
        ("gcloud:github", ("gcloud", "secrets", "versions", "access", "latest", "--secret=github")),
        ("security:github", ("security", "find-generic-password", "-w", "-s", "github")),
        ("secret-tool:github", ("secret-tool", "lookup", "service", "github")),
        ("op:op://v/$(id)/`f`;x", ("op", "read", "op://v/$(id)/`f`;x")),
    ],
)
def test_the_usual_programs_are_known(reference: str, command: tuple[str, ...]) -> None:
    assert make_lookup(reference, {}).command == command


def test_no_preset_lets_a_reference_choose_the_program() -> None:
    assert all(not set("{}") & set(program.command[0]) for program in PRESETS.values())


@pytest.mark.parametrize("reference", ["vault:secret/github", "vault:#token", "sops:file#"])
def test_a_reference_without_its_field_is_a_failure_that_says_how_to_write_it(
    read_config: ReadConfig, reference: str
) -> None:
    program = program_of(read_config, env={"A": f"${{{reference}}}"})

    assert isinstance(program, Broken)
    assert "#FIELD" in program.reason


def test_a_program_of_ones_own_replaces_the_preset(read_config: ReadConfig) -> None:
    own = {"op": {"command": ["op", "--account", "work", "read", "{}"], "output": "text"}}
    program = program_of(read_config, secrets=own, env={"A": "${op:op://v/i/f}"})

    assert isinstance(program, Program)
    assert program.lookups is not None
    [lookup] = program.lookups.secrets
    assert lookup == SecretLookup("op:op://v/i/f", ("op", "--account", "work", "read", "op://v/i/f"), "text")


@pytest.mark.parametrize(
    "secrets",
    [
        {"mine": {"command": []}},
        {"mine": {"command": ["ask"]}},
        {"mine": {"command": ["{}", "x"]}},
        {"mine": {"command": ["ask", "{}{}"]}},
        {"mine": {"command": ["ask", "{}", "{}"]}},
        {"mine": {"command": ["ask", "{#}"]}},
        {"mine": {"command": "ask {}"}},
        {"Mine": {"command": ["ask", "{}"]}},
        {"credential": {"command": ["ask", "{}"]}},
        {"keyring": {"command": ["ask", "{}"]}},
    ],
)
def test_a_program_that_cannot_be_asked_is_refused(refuse: Refuse, secrets: Json) -> None:
    error = refuse({"mcpServers": {}, "settings": {"secrets": secrets}})
    assert "settings.secrets" in str(error)


def test_a_changed_program_changes_the_server_and_nothing_else_does(read_config: ReadConfig) -> None:
    env = {"A": "${mine:one}"}
    before = program_of(read_config, secrets=MINE, env=env)

    assert program_of(read_config, secrets={**MINE, "other": {"command": ["x", "{}"]}}, env=env) == before
    assert program_of(read_config, secrets={"mine": {"command": ["ask2", "{}"]}}, env=env) != before
