from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dynamic_mcp.importer.convert.identity import identify
from dynamic_mcp.importer.convert.memory import Memory, Record
from dynamic_mcp.importer.convert.merge import Sides, merge_three_way, update_fingerprint
from dynamic_mcp.importer.formats.tree import NOTHING

Entry = dict[str, Any]  # whatever JSON a server has

MEMORY = Memory("salt")
LEAVES = st.booleans() | st.sampled_from(["a", "b", "c"]) | st.lists(st.sampled_from(["x", "y"]), max_size=2)
ENTRIES = st.dictionaries(st.sampled_from("kmn"), LEAVES | st.dictionaries(st.sampled_from("st"), LEAVES), max_size=3)


def record(entry: Entry) -> Record:
    made = MEMORY.fingerprint(entry)
    return Record("server", made, made)


def merged(base: Entry, mine: Entry, theirs: Entry) -> tuple[Any, Any, list[str]]:
    result = merge_three_way(Sides(mine, theirs, theirs), record(base), MEMORY)
    made = (result.mine, result.theirs)
    mine_, theirs_ = ({} if each is NOTHING else each for each in made)
    return mine_, theirs_, [".".join(map(str, keys)) for keys in result.conflicts]


@given(ENTRIES, ENTRIES)
def test_what_one_side_alone_changed_is_taken(base: Entry, changed: Entry) -> None:
    assert merged(base, changed, base) == (changed, changed, [])
    assert merged(base, base, changed) == (changed, changed, [])
    assert merged(base, changed, changed) == (changed, changed, [])


@given(ENTRIES, ENTRIES, ENTRIES)
def test_a_conflict_is_where_both_changed_and_the_same_again_is_none(base: Entry, mine: Entry, theirs: Entry) -> None:
    kept, taken, conflicts = merged(base, mine, theirs)
    if not conflicts:
        assert kept == taken
    for result in (kept, taken):
        sides = Sides(mine, theirs, theirs)
        after = Record(
            "server", MEMORY.fingerprint(theirs), update_fingerprint(result, sides, record(base).output, MEMORY)
        )
        again = merge_three_way(Sides(result, theirs, theirs), after, MEMORY)
        assert again.is_settled(), "what was decided is not asked again"
        assert (again.mine if again.mine is not NOTHING else {}) == result


def test_changes_of_different_fields_meet() -> None:
    base = {"command": "x", "env": {"A": "1", "B": "2"}}
    mine = {"command": "x", "env": {"A": "mine", "B": "2"}, "tools": {"include": ["*"]}}
    theirs = {"command": "y", "env": {"A": "1"}}
    both = {"command": "y", "env": {"A": "mine"}, "tools": {"include": ["*"]}}
    assert merged(base, mine, theirs) == (both, both, [])
    assert merged(base, {**mine, "command": "z"}, theirs)[2] == ["command"]


def test_without_a_record_every_difference_is_a_conflict_and_what_is_only_here_stays() -> None:
    mine = {"command": "x", "description": "mine"}
    result = merge_three_way(Sides(mine, {"command": "x", "cwd": "/"}, {"command": "x", "cwd": "/"}), None, MEMORY)
    assert (result.mine, result.conflicts) == (mine, (("cwd",),))


def test_a_memory_holds_no_value() -> None:
    assert "secret" not in str(MEMORY.fingerprint({"env": {"TOKEN": "secret"}}))
    assert Memory("other").fingerprint("secret") != MEMORY.fingerprint("secret")


def npx(*args: str, **more: Any) -> Entry:
    return {"command": "npx", "args": list(args), **more}


@pytest.mark.parametrize(
    ("one", "other", "is_same"),
    [
        (npx("-y", "pkg@latest"), npx("pkg"), True),
        (npx("@a/pkg@1.2", "x"), {"command": "cmd", "args": ["/c", "C:\\n\\npx.cmd", "-y", "@a/pkg", "x"]}, True),
        (npx("pkg", "x"), npx("pkg", "y"), False),
        (npx("pkg"), npx("pkg", cwd="/there"), False),
        (npx("pkg", cwd="/a/"), npx("pkg", cwd="/a/b/.."), True),
        ({"command": "uvx", "args": ["tool==1"]}, {"command": "uv", "args": ["tool", "run", "tool"]}, True),
        (npx("tool"), {"command": "uvx", "args": ["tool"]}, False),
        ({"command": "/usr/bin/foo"}, {"command": "foo"}, True),
        ({"command": "/a/foo"}, {"command": "/b/foo"}, False),
        ({"command": "python", "args": ["~/s.py"]}, {"command": "python", "args": ["${HOME}/s.py"]}, True),
        ({"url": "https://Host:443/mcp/"}, {"url": "https://host/mcp"}, True),
        ({"url": "https://host/mcp?a=1"}, {"url": "https://host/mcp?a=2"}, False),
        ({"url": "https://host/mcp"}, npx("mcp-remote@0.1", "https://host/mcp"), True),
        ({"url": "http://[bad"}, {"url": "http://[bad"}, True),
    ],
)
def test_a_server_is_what_it_runs(one: Entry, other: Entry, *, is_same: bool) -> None:
    assert identify(one, "/home/me").is_same(identify(other, "/home/me")) is is_same
    assert identify(other, "/home/me").is_same(identify(one, "/home/me")) is is_same


def test_two_command_line_programs_are_the_same_only_if_they_use_the_same_pack() -> None:
    git = identify({"cli": {"use": "git", "commands": ["log"]}}, "/home")

    assert git.is_same(identify({"cli": {"use": "git", "commands": ["status"]}}, "/home"))
    assert not git.is_same(identify({"cli": {"use": "rg", "commands": ["*"]}}, "/home"))
    assert not git.is_same(identify({"command": "git"}, "/home"))
