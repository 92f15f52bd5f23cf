from __future__ import annotations

import json
from pathlib import Path

import pytest

from dynamic_mcp.features.scan.spec_files import BadSpec, read_spec_file

USAGE = {
    "name": "brew",
    "bin": "brew",
    "cmd": {
        "name": "brew",
        "flags": [{"name": "cold", "short": ["c"], "long": ["cold"], "global": True, "help": "Cold"}],
        "subcommands": {
            "make": {
                "name": "make",
                "help": "Make some",
                "effect": "write",
                "args": [
                    {"name": "SOURCE", "required": True},
                    {"name": "bean", "required": False, "var": True, "choices": {"choices": ["arabica", "robusta"]}},
                ],
                "flags": [
                    {"name": "cups", "long": ["cups"], "required": True, "arg": {"name": "NUM"}},
                    {"name": "to", "long": ["to"], "var": True, "arg": {"name": "dir"}},
                    {"name": "force", "long": ["force"], "effect": "destructive", "negate": "--no-force"},
                    {"name": "hidden", "long": ["hidden"], "hide": True},
                ],
            },
            "old": {"name": "old", "hide": True},
        },
    },
}
CARAPACE = """\
name: brew
description: brews coffee
persistentflags:
  -c, --cold: cold
commands:
  - name: make
    description: make some
    flags:
      --bean=: which bean
      -t, --to=*: where to
      --cups=!: how many
      --level?: how strong
      --secret&: not shown
    completion:
      flag:
        bean: ["arabica\\tmild", "robusta"]
        to: ["$directories"]
        level: ["1", "$(brew levels)"]
  - name: old
    hidden: true
"""


def write(folder: Path, name: str, text: str) -> Path:
    file = folder / name
    file.write_text(text)
    return file


def test_a_usage_spec_says_everything(tmp_path: Path) -> None:
    root, make = read_spec_file(write(tmp_path, "brew.json", json.dumps(USAGE)))
    assert [each.name for each in root.subcommands] == ["make"]
    assert (make.path, make.effect, make.is_whole) == (("make",), "write", True)
    flags = {flag.names[0]: flag for flag in make.flags}
    assert set(flags) == {"--cups", "--to", "--force", "--no-force", "--cold"}
    assert {name: flag.value and flag.value.type for name, flag in flags.items()} == {
        "--cups": "integer",
        "--to": "path",
        "--force": "boolean",
        "--no-force": "boolean",
        "--cold": "boolean",
    }
    assert flags["--cups"].required
    assert flags["--force"].effect == "destructive"
    assert [(word.name, word.required, word.repeatable, word.values) for word in make.words or ()] == [
        ("source", True, False, ()),
        ("bean", False, True, ("arabica", "robusta")),
    ]


def test_a_spec_that_names_no_effect_leaves_it_unknown(tmp_path: Path) -> None:
    root, _ = read_spec_file(write(tmp_path, "brew.json", json.dumps(USAGE)))
    assert root.effect is None


def test_a_carapace_spec_says_what_takes_a_value(tmp_path: Path) -> None:
    root, make = read_spec_file(write(tmp_path, "brew.yaml", CARAPACE))
    assert [each.name for each in root.subcommands] == ["make"]
    flags = {flag.names[-1]: flag for flag in make.flags}
    assert {name: flag.value and (flag.value.values or flag.value.type) for name, flag in flags.items()} == {
        "--bean": ("arabica", "robusta"),
        "--to": "path",
        "--cups": None,
        "--level": None,  # not all of its values are in the spec
        "--cold": "boolean",
    }
    to = flags["--to"].value
    assert to is not None
    assert (to.repeatable, flags["--cups"].required) == (True, True)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("a.kdl", "bin brew"),
        ("a.json", "{"),
        ("a.json", "{}"),
        ("a.yaml", "- 1"),
        ("a.yaml", "a: [b"),
        ("a.yaml", "!!python/object/apply:os.system [x]"),
        ("a.yaml", "name: brew\nflags: 3"),
    ],
)
def test_what_is_no_spec_is_refused(tmp_path: Path, name: str, text: str) -> None:
    with pytest.raises(BadSpec):
        read_spec_file(write(tmp_path, name, text))
