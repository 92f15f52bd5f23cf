"""What the rules decide, whatever way leads to a thing."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from msgspec import Raw
from msgspec.structs import replace

from dynamic_mcp.config.access import AccessKind, Effect
from dynamic_mcp.identity import LOCAL_USER, Authentication, Principal
from dynamic_mcp.policy.access import GroupRules, Policy
from tests.policy.rules import access_of, person

Json = Any  # whatever JSON a test writes down


def rules_of(*rules: Json, group: str = "up", default: str | None = None, **members: Json) -> GroupRules:
    """Return the rules of somebody with one role."""
    more: Json = {"default": default} if default else {}
    policy = Policy(access_of(roles={"dev": list(rules)}, **more))
    return policy.rules_for(person("ann", "dev", **members)).for_group(group)


def approved_of(*rules: Json, approve: tuple[str, ...] = ("move_*",), **members: Json) -> GroupRules:
    """Return the rules of somebody with one role, where a person must approve tools of the server."""
    policy = Policy(access_of(approve={"up": approve}, roles={"dev": list(rules)}))
    return policy.rules_for(person("ann", "dev", **members)).for_group("up")


def effect(rules: GroupRules, name: str, arguments: bytes = b"{}", *, access: str = "write") -> Effect:
    """Decide about a tool."""
    return rules.judge(AccessKind.TOOL, name, access).decide(Raw(arguments)).effect


@pytest.mark.parametrize("order", list(itertools.permutations(range(3))))
def test_deny_wins_over_ask_over_allow_in_any_order(order: tuple[int, ...]) -> None:
    rules = [
        {"tools": ["*"]},
        {"tools": ["b*", "c*"], "effect": "ask"},
        {"tools": ["c*"], "effect": "deny"},
    ]
    found = rules_of(*(rules[place] for place in order))

    assert [effect(found, name) for name in "abc"] == [Effect.ALLOW, Effect.ASK, Effect.DENY]


def test_a_decision_names_its_rule() -> None:
    found = rules_of({"tools": ["a"]}, {"tools": ["b"], "effect": "ask", "id": "careful"})

    assert [found.judge(AccessKind.TOOL, name).decide(None).rule for name in "abc"] == [
        "roles.dev[0]",
        "careful",
        "default",
    ]


def test_nobody_who_authenticates_may_do_what_no_rule_allows_and_the_local_user_may() -> None:
    policy = Policy(access_of(roles={"dev": [{"servers": ["other"]}]}))

    assert effect(policy.rules_for(person("ann", "dev")).for_group("up"), "a") is Effect.DENY
    assert effect(policy.rules_for(LOCAL_USER).for_group("up"), "a") is Effect.ALLOW


@pytest.mark.parametrize("default", ["allow", "deny"])
def test_a_default_of_the_config_is_for_everybody(default: str) -> None:
    policy = Policy(access_of(default=default))

    for who in (person("ann"), LOCAL_USER):
        assert effect(policy.rules_for(who).for_group("up"), "a").value == default


def test_roles_come_from_the_credential_from_groups_and_from_the_list_of_people() -> None:
    policy = Policy(
        access_of(
            roles={"dev": [], "admin": [], "reader": []},
            roles_from={"map": {"eng-*": ["dev"], "none": ["no such role"]}},
            people={"ann": ["reader"], "local": ["admin"]},
        )
    )

    def in_groups(*names: str) -> tuple[tuple[str, tuple[str, ...]], ...]:
        return (("groups", names),)

    assert policy.roles_of(person("ann", "admin", claims=in_groups("eng-web", "none"))) == {"dev", "admin", "reader"}
    assert policy.roles_of(person("bob", claims=in_groups("eng-web"))) == {"dev"}
    assert policy.roles_of(person("bob", claims=in_groups("sales"))) == set()
    assert policy.roles_of(LOCAL_USER) == {"admin"}
    assert policy.roles_of(person("local")) == set(), "nobody gets the roles of the local user by a name"


def test_roles_for_a_name_with_an_issuer_are_for_nobody_else_of_that_name() -> None:
    named = access_of(roles={"dev": [], "admin": []}, people={"token:admin": ["admin"], "local": ["dev"]})
    policy = Policy(replace(named, principals={"token:admin": (Principal("token", "admin"),)}))

    assert policy.roles_of(Authentication(Principal("token", "admin"), "bearer")) == {"admin"}
    for impostor in (Principal("https://idp", "admin"), Principal("https://idp", "token:admin")):
        assert policy.roles_of(Authentication(impostor, "jwt")) == set()


def test_a_rule_that_names_tools_is_about_no_prompts_and_resources() -> None:
    found = rules_of({"tools": ["*"]})

    assert found.judge(AccessKind.TOOL, "a").is_visible
    assert not found.judge(AccessKind.PROMPT, "a").is_visible
    assert not found.may_see_resource("file:///a")


def test_a_rule_about_reading_is_about_reading_tools_prompts_and_resources() -> None:
    found = rules_of({"only": "read"})

    assert effect(found, "a", access="read") is Effect.ALLOW
    assert effect(found, "a", access="write") is Effect.DENY
    assert found.judge(AccessKind.PROMPT, "a").is_visible
    assert found.may_see_resource("file:///a")


def test_a_rule_about_writing_is_about_no_prompts_and_resources() -> None:
    found = rules_of({}, {"only": "write", "effect": "deny"})

    assert effect(found, "a", access="write") is Effect.DENY
    assert found.judge(AccessKind.PROMPT, "a").is_visible
    assert found.may_see_resource("file:///a")


@pytest.mark.parametrize("name", ["DELETE_repo", "delete_repo ", "\uff44elete_repo", "de\u200blete_repo"])
def test_another_way_to_write_a_name_gets_round_no_rule_that_denies_and_is_allowed_by_none(name: str) -> None:
    assert effect(rules_of({"tools": ["*"]}, {"tools": ["delete_*"], "effect": "deny"}), name) is Effect.DENY
    assert effect(rules_of({"tools": ["delete_repo"]}), name) is Effect.DENY


@pytest.mark.parametrize(
    ("uri", "is_allowed"),
    [
        ("file:///srv/docs/a", True),
        ("FILE:///srv/docs/a", False),
        ("file:///srv/docs/../secret", False),
        ("file:///srv/docs/%2e%2e/secret", False),
        ("file:///srv/docs/%252e%252e/secret", False),
        ("file:///srv/docs/private/a", False),
        ("file:///srv/docs/x/../private/a", False),
        ("file:///srv/docs/%70rivate/a", False),
        ("file:///srv/docs/.\t./secret/alpha.key", False),
        ("file:///srv/docs/%2\te%2e/secret", False),
        ("file:///srv/docs/a ", False),
    ],
)
def test_a_uri_is_decided_as_any_server_may_read_it(uri: str, *, is_allowed: bool) -> None:
    found = rules_of(
        {"resources": ["file:///srv/docs/*"]}, {"resources": ["file:///srv/docs/private/*"], "effect": "deny"}
    )

    assert found.may_see_resource(uri) is is_allowed


def test_a_tool_is_shown_if_some_arguments_are_allowed_and_decided_by_them() -> None:
    rule = {"tools": ["query"], "arguments": {"$.database": {"enum": ["stage"]}}}
    found = rules_of(rule)
    judgement = found.judge(AccessKind.TOOL, "query")

    assert judgement.is_visible
    assert judgement.settled is None
    assert judgement.decide(Raw(b'{"database":"stage"}')).effect is Effect.ALLOW
    for arguments in (b'{"database":"live"}', b"{}", b'{"database":["stage"]}', b"[1]", b'{"database":"sta'):
        assert judgement.decide(Raw(arguments)).effect is Effect.DENY, arguments


def test_a_tool_that_is_denied_with_all_arguments_is_not_shown_because_some_are_allowed() -> None:
    denied = {"tools": ["query"], "effect": "deny"}
    some = {"tools": ["query"], "arguments": {"$.database": {"enum": ["stage"]}}}

    for rules in ((denied, some), (some, denied)):
        judgement = rules_of(*rules).judge(AccessKind.TOOL, "query")
        assert not judgement.is_visible
        assert judgement.settled is not None


def test_what_cannot_be_evaluated_denies_and_asks_and_never_allows() -> None:
    condition = {"$.count": {"max": 5}}

    assert effect(rules_of({"arguments": condition}), "a", b'{"count":"many"}') is Effect.DENY
    for name in ("deny", "ask"):
        found = rules_of({}, {"arguments": condition, "effect": name})
        assert effect(found, "a", b'{"count":"many"}').value == name
        assert effect(found, "a", b'{"count":9}') is Effect.ALLOW


@pytest.mark.parametrize(
    "uri", ["file:///srv/docs/../secret", "file:///srv/docs/.\t./secret", "file:///srv/docs/%2e%2e/secret"]
)
def test_an_expression_is_about_every_reading_of_a_uri(uri: str) -> None:
    pytest.importorskip("cel_expr_python", reason="needs the extra `cel`")
    allowing = rules_of({"resources": ["*"], "when": "name.startsWith('file:///srv/docs/')"})
    denying = rules_of({}, {"resources": ["*"], "effect": "deny", "when": "name.startsWith('file:///secret')"})

    assert allowing.may_see_resource("file:///srv/docs/a")
    assert not allowing.may_see_resource(uri)
    assert denying.may_see_resource("file:///srv/secret")
    assert not denying.may_see_resource(uri.replace("docs", "x/..").replace("srv", "x"))


def test_an_expression_is_about_the_thing_who_asks_for_it_and_its_arguments() -> None:
    pytest.importorskip("cel_expr_python", reason="needs the extra `cel`")
    when = "subject == 'ann' && kind == 'tool' && name == 'a' && access == 'read' && arguments.n > 1"
    found = rules_of({"when": when})

    assert found.needs_classes
    assert not found.allows_everything
    assert effect(found, "a", b'{"n":2}', access="read") is Effect.ALLOW
    others = [("b", b'{"n":2}', "read"), ("a", b'{"n":1}', "read"), ("a", b'{"n":2}', "write"), ("a", b"{}", "read")]
    for name, arguments, access in others:
        assert effect(found, name, arguments, access=access) is Effect.DENY
    policy = Policy(access_of(roles={"dev": [{"when": when}]}))
    ann, bob = (policy.rules_for(person(subject, "dev")).for_group("up") for subject in ("ann", "bob"))
    assert effect(ann, "a", b'{"n":2}', access="read") is Effect.ALLOW
    assert effect(bob, "a", b'{"n":2}', access="read") is Effect.DENY
    assert ann != bob


def test_a_token_without_a_scope_is_told_which_one_it_lacks() -> None:
    rule = {"tools": ["*"], "scope": "tools:write"}

    assert effect(rules_of(rule, scopes=frozenset({"tools:write"})), "a") is Effect.ALLOW
    assert effect(rules_of(rule, scopes=None), "a") is Effect.ALLOW, "a credential without scopes lacks none"
    found = rules_of(rule, scopes=frozenset({"other"})).judge(AccessKind.TOOL, "a")
    assert (found.decide(None).effect, found.decide(None).scopes) == (Effect.DENY, ("tools:write",))
    assert found.is_visible


@pytest.mark.parametrize(
    ("rules", "is_visible"),
    [
        ([{}], True),
        ([{"servers": ["u?"]}], True),
        ([{"servers": ["down"]}], False),
        ([{}, {"servers": ["up"], "effect": "deny"}], False),
        ([{"tools": ["*"]}, {"tools": ["*"], "effect": "deny"}], False),
        ([{"tools": ["*"]}, {"tools": ["a*"], "effect": "deny"}], True),
        ([{}, {"effect": "deny", "arguments": {"$.a": {"enum": [1]}}}], True),
        ([{"effect": "ask"}], True),
        ([], False),
    ],
)
def test_a_group_is_there_if_anything_of_it_may_be_allowed(rules: list[Json], *, is_visible: bool) -> None:
    assert rules_of(*rules).is_visible is is_visible


def test_who_may_do_everything_is_served_as_if_there_were_no_rules() -> None:
    assert rules_of({}).allows_everything
    assert rules_of({"servers": ["*"], "tools": ["*"], "prompts": ["*"], "resources": ["*"]}).allows_everything
    assert rules_of(default="allow").allows_everything
    assert not rules_of({"tools": ["*"]}).allows_everything
    assert not rules_of({}, {"tools": ["a"], "effect": "ask"}).allows_everything


def test_of_two_people_with_the_same_roles_each_has_the_rules_of_their_own_scopes() -> None:
    policy = Policy(access_of(roles={"dev": [{"tools": ["*"], "scope": "tools"}]}))
    for scopes, expected in ((frozenset({"tools"}), Effect.ALLOW), (frozenset({"other"}), Effect.DENY)):
        own = policy.rules_for(person("ann", "dev", scopes=scopes)).for_group("up")
        assert effect(own, "a") is expected


def test_tools_are_classified_only_for_rules_that_ask_for_it() -> None:
    assert not rules_of({"tools": ["a"]}, {"resources": ["*"]}).needs_classes
    assert rules_of({"tools": ["a"]}, {"only": "read"}).needs_classes


def test_everybody_with_the_same_rights_has_the_same_rules() -> None:
    policy = Policy(access_of(roles={str(number): [{"tools": [str(number)]}] for number in range(5)}))

    found = {id(policy.rules_for(person(f"p{number}", str(number % 5)))) for number in range(1000)}

    assert len(found) == 5


@pytest.mark.parametrize(
    ("template", "is_shown"),
    [
        ("file:///srv/docs/{name}", True),
        ("file:///{+path}", True),
        ("file:///srv/{dir}/x", True),
        ("db://{table}", False),
        ("file:///srv/docs/private/{name}", False),
    ],
)
def test_a_template_is_listed_if_one_of_its_uris_may_be_allowed(template: str, *, is_shown: bool) -> None:
    found = rules_of(
        {"resources": ["file:///srv/docs/*"]},
        {"resources": ["file:///srv/docs/private/*"], "effect": "deny"},
        {"resources": ["db://users"], "effect": "deny"},
    )

    assert found.shows_template(template) is is_shown


@pytest.mark.parametrize(("template", "is_shown"), [("db://{table}", True), ("file:///keys/{name}", False)])
def test_where_everything_else_is_allowed_only_templates_that_are_denied_are_hidden(
    template: str, *, is_shown: bool
) -> None:
    found = rules_of({"resources": ["file:///keys/*"], "effect": "deny"}, default="allow")

    assert found.shows_template(template) is is_shown


# --- `approve` of a server -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "rules",
    [
        [],
        [{"servers": ["other"]}],
        [{"tools": ["read_*"]}],
        [{"only": "read"}],
        [{"prompts": ["*"]}],
        [{}, {"tools": ["move_*"], "effect": "deny"}],
        [{"tools": ["move_file"], "arguments": {"$.path": {"enum": ["/a"]}}}],
    ],
)
def test_approve_allows_nothing(rules: list[Json]) -> None:
    found, without = approved_of(*rules), rules_of(*rules)

    decision = found.judge(AccessKind.TOOL, "move_file", "write").decide(Raw(b'{"path": "/b"}'))
    assert (decision.effect, decision.allowed_by) == (Effect.DENY, "")
    assert decision == without.judge(AccessKind.TOOL, "move_file", "write").decide(Raw(b'{"path": "/b"}'))
    assert found.is_visible is without.is_visible
    for name in ("move_file", "read_file"):
        assert (
            found.judge(AccessKind.TOOL, name, "write").is_visible
            is without.judge(AccessKind.TOOL, name, "write").is_visible
        )


@pytest.mark.parametrize("name", ["move_file", "MOVE_FILE", "\uff4dove_file"])
def test_approve_asks_about_what_a_rule_allows_and_says_which(name: str) -> None:
    decision = approved_of({"servers": ["up"]}).judge(AccessKind.TOOL, name).decide(None)

    assert (decision.effect, decision.rule) == (Effect.ASK, "mcpServers.up.approve")
    assert decision.allowed_by == "roles.dev[0]"


def test_approve_asks_about_the_arguments_that_are_allowed_and_no_others() -> None:
    found = approved_of({"arguments": {"$.path": {"enum": ["/a"]}}}).judge(AccessKind.TOOL, "move_file")

    assert found.is_visible
    assert found.decide(Raw(b'{"path": "/a"}')).effect is Effect.ASK
    assert found.decide(Raw(b'{"path": "/b"}')).effect is Effect.DENY


def test_approve_asks_about_what_the_default_allows() -> None:
    for access in (access_of(approve={"up": ("*",)}), access_of(approve={"up": ("*",)}, default="allow")):
        decision = Policy(access).rules_for(LOCAL_USER).for_group("up").judge(AccessKind.TOOL, "a").decide(None)
        assert (decision.effect, decision.allowed_by) == (Effect.ASK, "default")


def test_approve_is_about_tools_alone() -> None:
    found = approved_of({}, approve=("*",))

    assert found.judge(AccessKind.PROMPT, "move_file").decide(None).effect is Effect.ALLOW
    assert found.judge(AccessKind.RESOURCE, "move_file").decide(None).effect is Effect.ALLOW


def test_a_scope_that_is_lacking_is_lacking_with_approve() -> None:
    found = approved_of({"scope": "files:write"}, scopes=frozenset({"other"})).judge(AccessKind.TOOL, "move_file")

    assert (found.decide(None).effect, found.decide(None).scopes) == (Effect.DENY, ("files:write",))


def test_a_rule_of_a_role_that_asks_lets_the_role_ask() -> None:
    decision = approved_of({"tools": ["move_*"], "effect": "ask"}).judge(AccessKind.TOOL, "move_file").decide(None)

    assert (decision.effect, decision.rule, decision.allowed_by) == (Effect.ASK, "roles.dev[0]", "roles.dev[0]")


def test_other_tools_to_approve_are_other_rules() -> None:
    assert approved_of({}) == approved_of({})
    assert approved_of({}) != approved_of({}, approve=("copy_*",))
    assert not approved_of({}).allows_everything
