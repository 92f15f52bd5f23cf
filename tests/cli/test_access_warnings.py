"""What `check` and `doctor` find wrong with access rules."""

from __future__ import annotations

from tests.cli.commands import CliRunner
from tests.program import full

PLACE = "settings.access"


def warnings(cli: CliRunner, **environment: str) -> dict[str, str]:
    """Return what `check` warns of, by place."""
    done = cli.run("check", **environment)
    assert done.code == 0, done.out
    return {each["where"]: each["what"] for each in done.json if each["level"] in ("warning", "note")}


def test_rules_that_match_nothing_are_found_once_the_tools_are_known(cli: CliRunner) -> None:
    rules = [
        {"servers": ["full", "ful"], "tools": ["echo", "ecko", "zz*"]},
        {"servers": ["other"], "tools": ["anything"]},
        {"prompts": ["*"], "resources": ["nowhere:*"]},
    ]
    cli.configure({"full": full()}, settings={"access": {"roles": {"r": rules}, "people": {"a": ["r"]}}})
    cli.config.chmod(0o600)
    before = warnings(cli)
    assert set(before) == {f"{PLACE}.roles.r[0].servers[1]", f"{PLACE}.roles.r[1].servers[0]"}
    assert cli.run("access", "classify", "--connect").code == 0
    found = warnings(cli)
    assert set(found) - set(before) == {
        f"{PLACE}.roles.r[0].tools[1]",
        f"{PLACE}.roles.r[0].tools[2]",
        f"{PLACE}.roles.r[2].resources[0]",
    }
    assert found[f"{PLACE}.roles.r[0].tools[1]"] == "`ecko` matches no tool that its servers are known to have"


def test_roles_that_nobody_has_and_roles_that_do_not_exist_are_found(cli: CliRunner) -> None:
    access = {
        "roles": {"used": [], "grouped": [], "profiled": [], "alone": []},
        "people": {"a": ["used", "usedd"]},
        "roles_from": {"map": {"g": ["grouped"]}},
    }
    cli.configure({"full": full()}, settings={"access": access}, profiles={"p": {"roles": ["profiled", "nil"]}})
    cli.config.chmod(0o600)
    found = warnings(cli)
    assert set(found) == {f"{PLACE}.people.a", f"{PLACE}.roles.alone", "profiles.p.roles"}
    assert "`usedd` is not defined" in found[f"{PLACE}.people.a"]
    assert found[f"{PLACE}.roles.alone"] == "this role is assigned to no user"


def test_nobody_is_told_of_roles_that_the_tokens_of_an_issuer_may_have(cli: CliRunner) -> None:
    issuer = {"kind": "jwt", "issuer": "https://id.example", "audience": ["x"], "claims": {"roles": "roles"}}
    http = {"auth": [issuer], "public_url": "https://mcp.example/mcp"}
    cli.configure({"full": full()}, settings={"access": {"roles": {"alone": []}}, "http": http})
    cli.config.chmod(0o600)
    assert warnings(cli) == {}


def test_roles_of_tokens_that_commands_have_made_count(cli: CliRunner) -> None:
    access: dict[str, object] = {"roles": {"given": [], "alone": []}}
    cli.configure({"full": full()}, settings={"access": access, "http": {"auth": [{"kind": "bearer"}]}})
    cli.config.chmod(0o600)
    assert cli.run("token", "create", "--as", "robot", "--role", "given", "--role", "undefined").code == 0
    assert warnings(cli) == {
        "tokens": "the role `undefined` is not defined, so it gives nothing",
        f"{PLACE}.roles.alone": "this role is assigned to no user",
    }


def test_a_rule_that_asks_where_not_every_client_can_be_asked_is_a_warning(cli: CliRunner) -> None:
    access = {"roles": {"r": [{"effect": "ask"}]}, "people": {"a": ["r"]}}
    cli.configure({"full": full()}, settings={"access": access, "approval": {"channels": ["client"]}})
    cli.config.chmod(0o600)
    assert list(warnings(cli)) == ["settings.approval.channels"]


def test_tools_to_approve_that_do_not_exist_are_found_once_the_tools_are_known(cli: CliRunner) -> None:
    cli.configure({"full": full(approve=["echo", "ecko", "ech*", "ecx*"])})
    cli.config.chmod(0o600)
    assert warnings(cli) == {}
    assert cli.run("access", "classify", "--connect").code == 0
    assert set(warnings(cli)) == {"mcpServers.full.approve[1]", "mcpServers.full.approve[3]"}


def test_authentication_without_rules_is_a_warning(cli: CliRunner) -> None:
    cli.configure({"full": full()}, settings={"http": {"auth": [{"kind": "bearer"}]}})
    cli.config.chmod(0o600)
    found = warnings(cli)
    assert list(found) == ["settings.http.auth"]
    assert "every client that authenticates may use everything" in found["settings.http.auth"]


def test_tools_to_approve_are_no_rules_of_who_may_use_what(cli: CliRunner) -> None:
    cli.configure({"full": full(approve=["echo"])}, settings={"http": {"auth": [{"kind": "bearer"}]}})
    cli.config.chmod(0o600)
    assert "every client that authenticates may use everything" in warnings(cli)["settings.http.auth"]


def test_roles_of_the_page_are_defined_without_rules(cli: CliRunner) -> None:
    access = {"roles": {"given": [{}]}, "people": {"a": ["given", "reviewers"]}}
    ui = {"operators": ["admins"], "approvers": ["reviewers"]}
    cli.configure({"full": full()}, settings={"access": access, "ui": ui, "http": {"auth": [{"kind": "bearer"}]}})
    cli.config.chmod(0o600)
    assert "no role" not in cli.run("token", "create", "--as", "ann", "--role", "admins").err
    assert warnings(cli) == {}


def test_doctor_says_the_same(cli: CliRunner) -> None:
    access = {"roles": {"r": [{"servers": ["none"]}]}, "people": {"a": ["r"]}}
    cli.configure({"full": full()}, settings={"access": access})
    done = cli.run("doctor")
    assert f"{PLACE}.roles.r[0].servers[0]" in {each["where"] for each in done.json["findings"]}
