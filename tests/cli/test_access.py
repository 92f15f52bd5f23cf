"""`dynamic-mcp access`: who may use what, by which rule, and what tools count as."""

from __future__ import annotations

import csv
import io
import json
from typing import Any

import pytest

from tests.cli.commands import CliRunner
from tests.program import full
from tests.terminal import strip_escapes

ACCESS = {
    "roles": {
        "reader": [{"only": "read"}],
        "dev": [
            {"servers": ["full"], "tools": ["*"]},
            {"id": "no-crash", "servers": ["full"], "tools": ["crash"], "effect": "deny"},
            {"tools": ["sample"], "effect": "ask"},
            {"servers": ["other"]},
        ],
        "limited": [{"tools": ["echo"], "arguments": {"$.text": {"enum": ["hi"]}}}],
        "scoped": [{"tools": ["echo"], "scope": "tools:echo"}],
    },
    "roles_from": {"claim": "groups", "map": {"eng-*": ["dev"], "scoped": ["scoped"]}},
    "people": {"alice": ["reader"], "bob": ["limited"], "carol": ["dev"]},
}


@pytest.fixture
def ruled(cli: CliRunner) -> CliRunner:
    """A config with rules, whose server has not been asked for its tools yet."""
    cli.configure({"full": full(effects={"read": ["vendor"]})}, settings={"access": ACCESS})
    return cli


def ask(cli: CliRunner, *words: str, code: int) -> Any:  # Any: JSON
    done = cli.run("access", *words)
    assert done.code == code, done.err
    return done.json


@pytest.mark.parametrize(
    ("words", "code", "effect", "rule"),
    [
        (("--as", "carol", "--tool", "echo"), 0, "allow", "roles.dev[0]"),
        (("--as", "carol", "--tool", "crash"), 1, "deny", "no-crash"),
        (("--as", "carol", "--tool", "sample"), 3, "ask", "roles.dev[2]"),
        (("--as", "carol", "--prompt", "greet"), 1, "deny", "default"),
        (("--as", "alice", "--prompt", "greet"), 0, "allow", "roles.reader[0]"),
        (("--as", "alice", "--resource", "x://y"), 0, "allow", "roles.reader[0]"),
        (("--as", "bob", "--tool", "echo", "--args", '{"text": "hi"}'), 0, "allow", "roles.limited[0]"),
        (("--as", "bob", "--tool", "echo", "--args", '{"text": "ho"}'), 1, "deny", "default"),
        (("--as", "dan", "--tool", "echo"), 1, "deny", "default"),
        (("--as", "dan", "--role", "dev", "--tool", "echo"), 0, "allow", "roles.dev[0]"),
        (("--as", "dan", "--role", "undefined", "--tool", "echo"), 1, "deny", "default"),
        (("--as", "local", "--tool", "echo"), 0, "allow", "default"),
    ],
)
def test_a_check_tells_effect_and_rule_and_exits_with_the_effect(
    ruled: CliRunner, words: tuple[str, ...], code: int, effect: str, rule: str
) -> None:
    decided = ask(ruled, "check", "--group", "full", *words, code=code)
    assert (decided["effect"], decided["rule"]) == (effect, rule)


def test_a_check_with_several_providers_asks_who_names_somebody(cli: CliRunner) -> None:
    people = {"token:admin": ["dev"], "https://idp:ann": ["reader"]}
    providers = [{"kind": "bearer"}, {"kind": "jwt", "issuer": "https://idp"}]
    http = {"public_url": "https://mcp.example.com/mcp", "auth": providers}
    cli.configure({"full": full()}, settings={"access": {**ACCESS, "people": people}, "http": http})

    def roles(name: str) -> Any:
        return ask(cli, "check", "-g", "full", "--as", name, "--prompt", "greet", code=name != "https://idp:ann")

    assert roles("token:admin")["roles"] == ["dev"]
    assert roles("https://idp:ann")["roles"] == ["reader"]
    assert roles("https://idp:admin")["roles"] == []
    refused = cli.run("access", "check", "-g", "full", "--as", "admin", "--prompt", "greet")
    assert "`token:admin` or `https://idp:admin`" in refused.err


def test_claims_give_roles_and_scopes(ruled: CliRunner) -> None:
    claims = ruled.folder / "claims.json"
    claims.write_text(json.dumps({"sub": "dan", "groups": ["eng-a"]}), encoding="utf-8")
    question = ("check", "-g", "full", "--tool", "echo", "--claims", str(claims))
    assert ask(ruled, *question, code=0)["roles"] == ["dev"]
    claims.write_text(json.dumps({"sub": "dan", "groups": "scoped", "scope": "openid"}), encoding="utf-8")
    refused = ask(ruled, *question, code=1)
    assert (refused["scopes"], refused["is_listed"]) == (["tools:echo"], True)
    claims.write_text(json.dumps({"sub": "dan", "groups": "scoped", "scope": "openid tools:echo"}), encoding="utf-8")
    assert ask(ruled, *question, code=0)["subject"] == "dan"


def test_claims_are_read_as_the_provider_of_their_issuer_reads_them(ruled: CliRunner) -> None:
    names = {"subject": "email", "roles": "realm_access.roles", "scopes": "permissions"}
    issuer = {"kind": "jwt", "issuer": "https://id.example", "audience": ["x"], "claims": names}
    http = {"auth": [issuer], "public_url": "https://mcp.example/mcp"}
    ruled.configure({"full": full()}, settings={"access": ACCESS, "http": http})
    claims = {"iss": "https://id.example", "email": "dan@x", "realm_access": {"roles": ["scoped"]}}
    file = ruled.folder / "claims.json"
    file.write_text(json.dumps({**claims, "permissions": ["tools:echo"]}), encoding="utf-8")
    decided = ask(ruled, "check", "-g", "full", "--tool", "echo", "--claims", str(file), code=0)
    assert (decided["subject"], decided["roles"]) == ("dan@x", ["scoped"])


def test_roles_of_tokens_count(ruled: CliRunner) -> None:
    tokens = [{"token": "${T}", "subject": "robot", "roles": ["dev"]}]
    auth = [{"kind": "bearer", "tokens": tokens}]
    ruled.configure({"full": full()}, settings={"access": ACCESS, "http": {"auth": auth}})
    question = ("access", "check", "-g", "full", "--tool", "echo", "--as")
    assert ruled.run(*question, "robot", T="x" * 40).code == 0
    assert ruled.run(*question, "other", T="x" * 40).code == 1
    assert ruled.run("token", "create", "--as", "other", "--role", "dev", T="x" * 40).code == 0
    assert ruled.run(*question, "other", T="x" * 40).code == 0


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (("--tool", "echo"), "who asks?"),
        (("--as", "a"), "give one of"),
        (("--as", "a", "--tool", "t", "--prompt", "p"), "give one of"),
        (("--as", "a", "--tool", "t", "--args", "[1]"), "`--args` is not a JSON object"),
        (("--as", "a", "--resource", "x://y", "--args", "{}"), "a resource has no arguments"),
        (("--as", "a", "--tool", "t", "--claims", "nowhere"), "cannot be read"),
        (("--as", "local", "--role", "dev", "--tool", "t"), "has no credential"),
    ],
)
def test_an_incomplete_question_is_exit_code_2(ruled: CliRunner, words: tuple[str, ...], complaint: str) -> None:
    done = ruled.run("access", "check", "-g", "full", *words)
    assert (done.code, done.out) == (2, "")
    assert complaint in done.err


def test_an_unknown_group_is_exit_code_2_with_what_is_meant(ruled: CliRunner) -> None:
    done = ruled.run("access", "check", "-g", "fulll", "--as", "alice", "--tool", "echo")
    assert done.code == 2
    assert "did you mean `full`?" in done.err


def test_an_explanation_has_every_rule_and_why_it_does_not_match(ruled: CliRunner) -> None:
    explained = ask(ruled, "explain", "-g", "full", "--as", "carol", "--tool", "sample", code=3)
    reasons = {rule["id"]: (rule["matches"], rule["mismatch"]) for rule in explained["rules"]}
    assert reasons == {
        "roles.dev[0]": (True, ""),
        "no-crash": (False, "its tools do not match"),
        "roles.dev[2]": (True, ""),
        "roles.dev[3]": (False, "its servers do not match"),
    }


@pytest.fixture
def approved(cli: CliRunner) -> CliRunner:
    """The same config, in which a person must approve two tools of the server."""
    cli.configure({"full": full(approve=["echo", "vendor"])}, settings={"access": ACCESS})
    return cli


def test_approve_asks_about_what_is_allowed_and_the_reason_says_by_which_rule(approved: CliRunner) -> None:
    decided = ask(approved, "check", "-g", "full", "--as", "carol", "--tool", "echo", code=3)
    assert (decided["effect"], decided["rule"]) == ("ask", "mcpServers.full.approve")
    assert decided["allowed_by"] == "roles.dev[0]"
    assert decided["reason"] == "tools echo, vendor of full, if allowed; allowed by roles.dev[0]"
    assert ask(approved, "check", "-g", "full", "--as", "local", "--tool", "echo", code=3)["allowed_by"] == "default"
    assert ask(approved, "check", "-g", "full", "--as", "dan", "--tool", "echo", code=1)["rule"] == "default"


def test_an_explanation_has_approve_and_why_it_does_not_ask(approved: CliRunner) -> None:
    def explain(who: str, tool: str, code: int) -> tuple[bool, str]:
        rules = ask(approved, "explain", "-g", "full", "--as", who, "--tool", tool, code=code)["rules"]
        return next((rule["matches"], rule["mismatch"]) for rule in rules if rule["id"] == "mcpServers.full.approve")

    assert explain("carol", "echo", 3) == (True, "")
    assert explain("carol", "crash", 1) == (False, "its tools do not match")
    assert explain("dan", "echo", 1) == (False, "nothing allows it, so there is nothing to approve")


def test_a_uri_that_cannot_be_judged_is_denied_and_the_explanation_says_why(cli: CliRunner) -> None:
    cli.configure({"full": full()}, settings={"access": {"roles": {"dev": [{"resources": ["file:///docs/*"]}]}}})
    words = ("-g", "full", "--as", "ann", "--role", "dev", "--resource", "file:///docs/.\t./secret")
    explained = ask(cli, "explain", *words, code=1)
    assert "it cannot be judged: the URI has a control character" in explained["rules"][0]["mismatch"]


def test_an_explanation_is_readable_on_a_terminal(ruled: CliRunner) -> None:
    done = ruled.run_on_terminal("access", "explain", "-g", "full", "--as", "carol", "--tool", "crash", width=120)
    shown = strip_escapes(done.out)
    assert done.code == 1
    assert "deny  no-crash  (tools crash of full)" in shown
    assert "roles: dev" in shown
    assert "its servers do not match" in shown


def test_without_rules_everything_is_allowed(cli: CliRunner) -> None:
    decided = ask(cli, "check", "-g", "full", "--as", "anybody", "--tool", "echo", code=0)
    assert decided["reason"] == "the config has no access rules"


def test_a_role_that_the_rules_do_not_have_is_named(ruled: CliRunner) -> None:
    words = ("check", "-g", "full", "--as", "stranger", "--tool", "echo")
    assert ask(ruled, *words, code=1)["reason"] == "the subject has no role, so no rule applies"
    assert ask(ruled, *words, "--role", "raeder", code=1)["reason"] == "`raeder` has no rules, so none applies"


def test_a_tool_that_is_not_known_counts_as_one_that_writes(ruled: CliRunner) -> None:
    done = ruled.run("access", "check", "-g", "full", "--as", "alice", "--tool", "roots")
    assert done.code == 1
    assert "`roots` counts as one that writes" in done.err
    assert ruled.run("tools").code == 0
    assert ask(ruled, "check", "-g", "full", "--as", "alice", "--tool", "roots", code=0)["access"] == "read"


def test_it_is_said_that_something_else_than_rules_hides_a_tool(cli: CliRunner) -> None:
    profiles = {"small": {"tools": {"exclude": ["echo"]}, "roles": ["dev"]}}
    hidden = full(tools={"exclude": ["crash"]})
    cli.configure({"full": hidden}, settings={"access": ACCESS}, profiles=profiles)
    question = ("access", "check", "-g", "full", "--as", "carol", "--tool")
    assert "the profile `small`, which follows from the roles, does not show it" in cli.run(*question, "echo").err
    nobody = ("access", "check", "-g", "full", "--as", "alice", "--tool")
    assert "the config hides it for everybody" in cli.run(*nobody, "crash").err
    assert "show" not in cli.run(*nobody, "plain").err


def test_the_matrix_without_rules_says_that_everybody_may_use_everything(cli: CliRunner) -> None:
    for approve in ([], ["echo"]):
        cli.configure({"full": full(approve=approve)})
        assert "has no access rules, so everybody may use everything" in cli.run("access", "matrix").err


def test_the_matrix_connects_only_if_asked_to(ruled: CliRunner) -> None:
    done = ruled.run("access", "matrix")
    assert (done.code, done.json) == (0, [])
    assert "`--connect` reads them" in done.err
    rows = {row["tool"]: row for row in ask(ruled, "matrix", "--connect", code=0)}
    assert rows["echo"]["roles"] == {"reader": "deny", "dev": "allow", "limited": "depends", "scoped": "allow"}
    assert rows["crash"]["roles"]["dev"] == "deny"
    assert rows["sample"]["roles"]["dev"] == "ask"
    assert rows["vendor"]["access"] == "read"
    table = list(csv.reader(io.StringIO(ruled.run("access", "matrix", "--csv").out)))
    assert table[0] == ["group", "tool", "access", "reader", "dev", "limited", "scoped"]
    assert ["full", "echo", "write", "deny", "allow", "depends", "allow"] in table


def test_classes_tell_who_says_so_and_why(ruled: CliRunner) -> None:
    found = {each["tool"]: each for each in ask(ruled, "classify", "full", "--connect", code=0)}
    assert (found["vendor"]["access"], found["vendor"]["source"]) == ("read", "config")
    assert (found["update"]["access"], found["update"]["source"]) == ("write", "classifier")
    assert found["update"]["evidence"] == ["`update` in the name"]
    assert "nothing says that it only reads" in strip_escapes(ruled.run_on_terminal("access", "classify").out)
