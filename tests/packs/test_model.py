"""What a pack may say, and what is refused in one."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from dynamic_mcp.packs import library
from dynamic_mcp.packs.model import Command, Flag, tool_name
from dynamic_mcp.packs.schema import schema

Json = dict[str, Any]


def pack(**command: Any) -> Json:  # Any: JSON
    """A pack with one command."""
    made = {"name": "show", "description": "Shows.", **command}
    return {"name": "it", "program": "it", "description": "It.", "commands": [made]}


def refusal(document: Json) -> str:
    with pytest.raises(library.BadPack) as caught:
        library.decode(json.dumps(document).encode())
    return str(caught.value)


def test_a_tool_is_called_by_its_pack_and_its_command() -> None:
    assert tool_name("kubectl", "config view") == "kubectl_config_view"
    assert tool_name("git", "ls-files") == "git_ls_files"


@pytest.mark.parametrize(
    ("flag", "argument", "written"),
    [
        (Flag(name="--max-count", type="integer"), "max_count", "equals"),
        (Flag(name="--oneline", type="boolean"), "oneline", "bare"),
        (Flag(name="-S", type="string", as_="pickaxe"), "pickaxe", "joined"),
        (Flag(name="--arg", type="pairs"), "arg", "separate"),
        (Flag(name="-refresh", type="boolean", style="equals"), "refresh", "equals"),
    ],
)
def test_a_flag_is_written_as_its_name_and_type_suggest(flag: Flag, argument: str, written: str) -> None:
    assert (flag.argument, flag.written) == (argument, written)


def test_what_a_command_does_is_the_worst_of_it_and_its_flags() -> None:
    delete = Flag(name="--delete", type="boolean", effect="destructive")
    listing = Command(name="branch", description="Lists.", effect="read", flags=[delete])

    assert listing.worst_effect == "destructive"


def test_what_nobody_said_the_effect_of_is_unknown() -> None:
    assert library.decode(json.dumps(pack()).encode()).commands[0].effect == "unknown"


@pytest.mark.parametrize(
    ("command", "words"),
    [
        ({"flag": []}, "unknown field `flag`"),
        ({"name": "Show"}, "matching regex"),
        ({"path": ["--force"]}, "matching regex"),
        ({"path": ["-"]}, "matching regex"),
        ({"flags": [{"name": "force", "type": "boolean"}]}, "matching regex"),
        ({"flags": [{"name": "--", "type": "boolean"}]}, "matching regex"),
        ({"flags": [{"name": "--a=b", "type": "boolean"}]}, "matching regex"),
        ({"flags": [{"name": "--force"}]}, "`type`"),
        ({"flags": [{"name": "--force", "type": "enum"}]}, "`values`"),
        ({"flags": [{"name": "--force", "type": "string", "values": ["a"]}]}, "`values`"),
        ({"flags": [{"name": "--force", "type": "string", "style": "bare"}]}, "only a boolean"),
        ({"flags": [{"name": "--force", "type": "boolean", "style": "joined"}]}, "a boolean is"),
        ({"flags": [{"name": "--force", "type": "string", "style": "joined"}]}, "one letter"),
        ({"flags": [{"name": "-refresh", "type": "string"}]}, "needs a `style`"),
        ({"flags": [{"name": "-3", "type": "boolean"}]}, "needs a name"),
        ({"flags": [{"name": "--cwd", "type": "string"}]}, "duplicate argument `cwd`"),
        ({"flags": [{"name": "--a", "type": "string"}, {"name": "-a", "type": "string"}]}, "duplicate argument `a`"),
        ({"flags": [{"name": "--a", "type": "string"}], "positionals": [{"name": "a"}]}, "duplicate argument `a`"),
        (
            {"flags": [{"name": "--a", "type": "string", "aliases": ["-x"]}, {"name": "-x", "type": "boolean"}]},
            "duplicate flag `-x`",
        ),
        ({"positionals": [{"name": "a", "except": "("}]}, "not a regular expression"),
        ({"flags": [{"name": "--a", "type": "integer", "except": "1"}]}, "only a string or a path has `except`"),
        ({"positionals": [{"name": "a", "before_separator": True}]}, "without a `separator`"),
        ({"positionals": [{"name": "a", "repeatable": True}, {"name": "b"}]}, "only the last"),
        ({"positionals": [{"name": "a"}, {"name": "b", "required": True}]}, "comes before"),
        ({"fixed": ["--"]}, "would make words of all flags"),
        ({"fixed": ["a\0b"]}, "matching regex"),
        ({"ok_exit_codes": [256]}, "<= 255"),
        ({"effect": "none"}, "invalid enum value"),
    ],
)
def test_what_is_wrong_in_a_pack_is_said_with_its_place(command: Json, words: str) -> None:
    refused = refusal(pack(**command)).lower()

    assert words.lower() in refused
    assert "$.commands[0]" in refused or "$.commands[...]" in refused


def test_two_commands_cannot_be_the_same_tool() -> None:
    document = pack()
    document["commands"].append({"name": "sh-ow", "description": "x"})
    document["commands"].append({"name": "sh ow", "description": "x"})

    assert "`it_sh_ow`" in refusal(document)


def test_what_is_no_json_is_no_pack(tmp_path: Path) -> None:
    file = tmp_path / "pack.json"
    for text in ("", "{", "[]", '"x"', "[" * 100_000):
        file.write_text(text, encoding="utf-8")
        with pytest.raises(library.BadPack):
            library.read_file(file)


def test_the_schema_for_editors_accepts_what_is_read_and_no_unknown_field() -> None:
    validator = Draft202012Validator(schema())
    Draft202012Validator.check_schema(schema())

    assert validator.is_valid(pack(flags=[{"name": "--force", "type": "boolean"}]))
    assert not validator.is_valid(pack(flag=[]))


def test_the_pack_in_the_documents_is_one() -> None:
    page = (Path(__file__).parents[2] / "docs" / "command-line-programs.md").read_text(encoding="utf-8")
    (text,) = re.findall(r'^```json\n(\{\n  "name".*?)^```', page, re.MULTILINE | re.DOTALL)

    (count,) = library.decode(text.encode()).commands

    assert tool_name("wc", count.name) == "wc_count"
