"""Configs with the names of earlier versions: how they are read, and what becomes of their text."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dynamic_mcp.config import jsonc
from dynamic_mcp.config.old_names import Renaming
from dynamic_mcp.config.read import parse
from dynamic_mcp.config.resolved import OAuth, Remote
from tests.config.fixtures import ReadConfig, Refuse
from tests.config.test_edit import json_texts

Json = Any  # whatever JSON a test writes down


def one(**fields: Json) -> Json:
    return {"mcpServers": {"a": {"command": "x", **fields}}}


def far(**fields: Json) -> Json:
    return {"mcpServers": {"a": {"url": "https://h/mcp", **fields}}}


def git(cli: Json, **fields: Json) -> Json:
    return {"mcpServers": {"a": {"cli": {"use": "git", "commands": ["*"], **cli}, **fields}}}


def of_all(**settings: Json) -> Json:
    return {"mcpServers": {"a": {"command": "x"}}, "settings": settings}


EQUALS: list[tuple[Json, Json]] = [
    (one(expose="direct"), one(direct=True)),
    (one(expose="group"), one(direct=False)),
    (one(expose="auto"), one(direct="auto")),
    (one(pinned=["get_*"]), one(direct=["get_*"])),
    (one(pinned=["get_*"], expose="group"), one(direct=["get_*"])),
    (one(pinned=["get_*"], expose="direct"), one(direct=True)),
    (one(pinned=["get_*"], expose=None), one(direct=["get_*"])),
    (one(pinned=None, expose="direct"), one(direct=True)),
    (one(pinned=["get_*"], direct=None), one(direct=["get_*"])),
    (one(trusted=True), one(trust_annotations=True)),
    (one(access={"read": ["query"]}), one(effects={"read": ["query"]})),
    (far(oauth_client_id="me", oauth_scopes=["a"]), far(oauth={"client_id": "me", "scopes": ["a"]})),
    (far(oauth_scopes=["a"], oauth={"client_id": "me"}), far(oauth={"client_id": "me", "scopes": ["a"]})),
    (far(oauth_client_id="me", oauth=None), far(oauth={"client_id": "me"})),
    (
        one(overrides={"a": {"hide": True}, "b": {"hide": False, "title": "B"}}, tools={"exclude": ["c"]}),
        one(overrides={"b": {"title": "B"}}, tools={"exclude": ["c", "a"]}),
    ),
    (one(overrides={"a": {"hide": True}}, tools=None), one(overrides={}, tools={"exclude": ["a"]})),
    (
        {**one(overrides={"a": {"hide": True}}), "settings": {"tools": {"exclude": ["c"]}}},
        {**one(overrides={}, tools={"exclude": ["c", "a"]}), "settings": {"defaults": {"tools": {"exclude": ["c"]}}}},
    ),
    (
        git({}, access={"read": ["git_log"], "write": ["git_ls_files", "git_sh*"]}),
        git({"effects": {"ls?files": "write", "sh*": "write", "log": "read"}}),
    ),
    ({**one(), "profiles": {"p": {"expose": "direct"}}}, {**one(), "profiles": {"p": {"direct": True}}}),
    (
        of_all(timeout={"tools": 5}, env={"A": "b"}, log={"level": "debug"}, limits=[{"rate": "1/s"}]),
        of_all(
            defaults={"timeout": {"tools": 5}, "env": {"A": "b"}, "limits": [{"rate": "1/s"}]}, log={"level": "debug"}
        ),
    ),
    (of_all(expose="direct"), of_all(defaults={"direct": True})),
    (
        of_all(access={"roles": {"r": [{"access": "read"}, {"access": "any", "tools": ["a"]}]}}),
        of_all(access={"roles": {"r": [{"only": "read"}, {"tools": ["a"]}]}}),
    ),
    (
        of_all(http={"auth": [{"kind": "bearer"}, {"kind": "forwarded", "trusted": ["unix"]}]}),
        of_all(http={"auth": [{"kind": "bearer"}, {"kind": "forwarded", "trusted_proxies": ["unix"]}]}),
    ),
    (of_all(share="all", defaults={"connect": "eager"}), of_all(defaults={"connect": "eager", "share": "all"})),
    ({**of_all(expose="direct"), **one(pinned=["a"])}, {**of_all(defaults={"direct": True}), **one()}),
]


@pytest.mark.parametrize(("old", "new"), EQUALS)
def test_old_names_mean_what_the_new_ones_do(read_config: ReadConfig, old: Json, new: Json) -> None:
    before, after = read_config(old), read_config(new)

    assert (before.groups, before.presentations) == (after.groups, after.presentations)
    assert (before.profiles, before.access, before.http) == (after.profiles, after.access, after.http)
    assert (len(before.file_warnings), after.file_warnings) == (1, ())


@pytest.mark.parametrize(("old", "new"), EQUALS)
def test_a_text_with_old_names_becomes_one_with_the_new_names(old: Json, new: Json) -> None:
    for indent in (None, 2):
        assert jsonc.loads(Renaming(json.loads(json.dumps(old))).rewrite(json.dumps(old, indent=indent))) == new


@pytest.mark.parametrize("new", [new for _, new in EQUALS])
def test_nothing_is_renamed_in_a_config_with_the_new_names(new: Json) -> None:
    renaming = Renaming(json.loads(json.dumps(new)))

    assert (renaming.renamed, renaming.conflicts) == ([], [])
    assert renaming.rewrite(text := json.dumps(new)) == text


@pytest.mark.parametrize(
    ("document", "old", "new"),
    [
        (one(pinned=["a"], direct=True), "mcpServers.a.pinned", "mcpServers.a.direct"),
        (one(expose="group", direct=False), "mcpServers.a.expose", "mcpServers.a.direct"),
        (
            {**one(pinned=["a"], direct=False), "settings": {"defaults": {"direct": True}}},
            "mcpServers.a.pinned",
            "mcpServers.a.direct",
        ),
        (one(trusted=True, trust_annotations=False), "mcpServers.a.trusted", "mcpServers.a.trust_annotations"),
        (
            far(oauth_client_id="me", oauth={"client_id": "other"}),
            "mcpServers.a.oauth_client_id",
            "mcpServers.a.oauth.client_id",
        ),
        (
            of_all(timeout={"tools": 1}, defaults={"timeout": {"connect": 2}}),
            "settings.timeout",
            "settings.defaults.timeout",
        ),
        (
            git({"effects": {"log": "read"}}, access={"write": ["git_log"]}),
            "mcpServers.a.access",
            "mcpServers.a.cli.effects",
        ),
    ],
)
def test_a_value_under_both_names_is_an_error_that_has_both(
    refuse: Refuse, document: Json, old: str, new: str
) -> None:
    error = refuse(document)

    assert error.where == old
    assert f"cannot stand beside `{new}`, its new name" in error.message


def test_an_override_that_shows_what_a_glob_hides_needs_a_person(refuse: Refuse) -> None:
    error = refuse(one(overrides={"get_a": {"hide": False}, "get_*": {"hide": True}}))

    assert error.where == "mcpServers.a.overrides.get_a.hide"
    assert "`tools.exclude` has no exceptions" in error.message


def test_effects_by_tools_of_which_the_commands_are_not_known_need_a_person(refuse: Refuse) -> None:
    error = refuse(git({}, access={"read": ["*_log"]}))

    assert error.where == "mcpServers.a.access"
    assert "is now `mcpServers.a.cli.effects`, by commands" in error.message


@pytest.mark.parametrize(
    ("document", "where"),
    [
        (of_all(timeout={"tools": "soon"}), "settings.timeout.tools"),
        (one(expose="grouped"), "mcpServers.a.expose"),
        (one(pinned=["a", ""]), "mcpServers.a.pinned"),
        (far(oauth_scopes="a"), "mcpServers.a.oauth_scopes"),
        (one(trusted=True, bogus=1), "mcpServers.a.bogus"),
        (one(overrides={"a": {"hide": 1}}), "mcpServers.a.overrides.a.hide"),
        (one(overrides={"a": {"hide": True}}, tools=["a"]), "mcpServers.a.tools"),
        ({"mcpServers": {"a": {"cli": "git", "access": {}}}}, "mcpServers.a.cli"),
        (one(trusted=True, timeout={"tools": "soon"}), "mcpServers.a.timeout.tools"),
    ],
)
def test_a_wrong_value_is_named_where_it_stands_in_the_file(refuse: Refuse, document: Json, where: str) -> None:
    assert refuse(document).where == where


def test_all_old_names_are_one_warning_with_the_way_out(read_config: ReadConfig, tmp_path: Path) -> None:
    servers = {f"s{number}": {"command": "x", "trusted": True} for number in range(3)}
    config = read_config({"mcpServers": servers})

    (warning,) = config.file_warnings
    assert warning.startswith("`mcpServers.s0.trusted` is now `mcpServers.s0.trust_annotations`, and 2 more names")
    assert warning.endswith("; `dynamic-mcp check --fix` rewrites the file")
    assert parse(tmp_path / "dynamic-mcp.json").resolve({}, "/elsewhere").warnings == ()


def test_a_config_of_the_reference_project_is_read_as_it_is(read_config: ReadConfig) -> None:
    config = read_config(far(oauth_client_id="${ID}", oauth_scopes=["a"], timeout={"tools": "2min"}), ID="me")

    (group,) = config.groups
    assert isinstance(group.upstream, Remote)
    assert group.upstream.oauth == OAuth("me", scopes=("a",))
    assert group.timeouts.tools_s == 120


TEXT = """{
  // the servers
  "mcpServers": {
    "a": {
      "command": "x",
      // all of them
      "expose": "direct", // it is small
      "access": { "read": ["r*"] },
    },
    "b": { "url": "http://x/y", "oauth_client_id": "me", "oauth_scopes": ["a"] },
  },
  "settings": {
    // it is slow
    // on Mondays
    "timeout": { // of all
      "tools": "2min", // really
      /* as is */ "connect": 3
    }, // so there
    "log": { "level": "debug" },

    // last
    "env": { "A": "// no comment" }
  }
}
"""
REWRITTEN = """{
  // the servers
  "mcpServers": {
    "a": {
      "command": "x",
      // all of them
      "direct": true, // it is small
      "effects": { "read": ["r*"] },
    },
    "b": { "url": "http://x/y", "oauth": { "client_id": "me", "scopes": ["a"] } },
  },
  "settings": {
    "defaults": {
      // it is slow
      // on Mondays
      "timeout": { // of all
        "tools": "2min", // really
        /* as is */ "connect": 3
      }, // so there
      // last
      "env": { "A": "// no comment" }
    },
    "log": { "level": "debug" }

  }
}
"""


@pytest.mark.parametrize("mark", ["", "\ufeff"])
@pytest.mark.parametrize("eol", ["\n", "\r\n"])
def test_a_rewritten_file_keeps_comments_order_and_line_ends(mark: str, eol: str) -> None:
    text = mark + TEXT.replace("\n", eol)

    assert Renaming(jsonc.loads(text.removeprefix(mark))).rewrite(text) == mark + REWRITTEN.replace("\n", eol)


NAMES = ("expose", "pinned", "trusted", "access", "oauth_scopes", "timeout", "overrides", "tools", "direct")
VALUES = [None, True, "direct", "group", ["a"], {}, {"read": ["a"]}, {"a": {"hide": True}}]
SECTIONS = st.dictionaries(st.sampled_from((*NAMES, "defaults")), st.sampled_from(VALUES), max_size=4)


@given(st.dictionaries(st.sampled_from("ab"), SECTIONS), SECTIONS)
def test_what_is_rewritten_is_what_is_read(servers: dict[str, Json], settings: dict[str, Json]) -> None:
    document = {"mcpServers": servers, "settings": settings, "profiles": servers}
    text = json.dumps(document, indent=2)
    renaming = Renaming(json.loads(text))

    assert jsonc.loads(renaming.rewrite(text)) == renaming.tree
    assert renaming.conflicts or Renaming(json.loads(json.dumps(renaming.tree))).renamed == []


@given(json_texts())
def test_what_is_no_config_is_left_alone(source: tuple[str, object]) -> None:
    text, value = source
    renaming = Renaming(value)

    assert (renaming.renamed, renaming.conflicts) == ([], [])
    assert renaming.rewrite(text) == text
