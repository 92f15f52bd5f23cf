"""Installed Python programs, described by their own interpreter."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from dynamic_mcp.features.scan.merge import MergedCommand
from dynamic_mcp.features.scan.python_program import EntryPoint, find_entry
from tests.features.scan.programs import scan

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="scripts need a shebang")

CLICK = """
import click

@click.group(invoke_without_command=True)
@click.option("--cold/--warm", help="How warm.")
def main(cold):
    raise RuntimeError("it was run")

@main.command()
@click.argument("source", type=click.Path())
@click.argument("more", nargs=-1)
@click.option("-c", "--cups", type=click.IntRange(1, 9), required=True, help="How many.")
@click.option("--bean", type=click.Choice(["arabica", "robusta"]), multiple=True)
@click.option("--secret", hidden=True)
def make(**members):
    "Make some."
"""
ARGPARSE = """
import argparse, pathlib

def main():
    parser = argparse.ArgumentParser(description="Brews.")
    below = parser.add_subparsers()
    make = below.add_parser("make", help="Make some.")
    make.add_argument("source", type=pathlib.Path)
    make.add_argument("more", nargs="*")
    make.add_argument("-c", "--cups", type=int, required=True, help="How many.")
    make.add_argument("--bean", choices=["arabica", "robusta"], action="append")
    make.add_argument("--secret", help=argparse.SUPPRESS)
    parser.parse_args()
    raise RuntimeError("it was run")
"""


def install(folder: Path, code: str, *, call: str = "main") -> Path:
    """Install a program as pip does, in an interpreter that finds its module."""
    (folder / "brewery.py").write_text(code)
    python = folder / "python3"
    python.write_text(f"#!/bin/sh\nPYTHONPATH='{folder}' exec '{sys.executable}' \"$@\"\n")
    python.chmod(0o755)
    script = folder / "brew"
    script.write_text(
        f"#!{python}\nimport sys\nfrom brewery import {call}\nif __name__ == '__main__':\n    sys.exit({call}())\n"
    )
    script.chmod(0o755)
    return script


def facts(command: MergedCommand) -> dict[str, object]:
    return {
        each.flag.names[-1]: each.flag.value and (each.flag.value.values or each.flag.value.type)
        for each in command.flags
    }


@pytest.mark.parametrize("code", [CLICK, ARGPARSE])
async def test_what_a_program_parses_is_described_whole(tmp_path: Path, code: str) -> None:
    found = await scan(install(tmp_path, code), tmp_path, sources=("python",))
    make = found.commands[1]
    assert {name: kind for name, kind in facts(make).items() if name != "--help"} == {
        "--cups": "integer",
        "--bean": ("arabica", "robusta"),
    }
    assert make.fact.description == "Make some."
    assert [(w.name, w.type, w.required, w.repeatable) for w in make.fact.words or ()] == [
        ("source", "path", True, False),
        ("more", "string", False, True),
    ]
    flags = {each.flag.names[-1]: each.flag for each in make.flags}
    assert flags["--cups"].required
    bean = flags["--bean"].value
    assert bean is not None
    assert bean.repeatable


async def test_a_function_is_called_only_until_its_arguments_would_be_parsed(tmp_path: Path) -> None:
    code = CLICK + "\ndef start():\n    main()\n    open('/dev/null/x')\n"
    found = await scan(install(tmp_path, code, call="start"), tmp_path, sources=("python",))
    assert [each.fact.path for each in found.commands] == [(), ("make",)]
    assert set(facts(found.commands[0])) == {"--cold", "--warm"}


async def test_a_program_that_parses_by_itself_is_asked_for_help(tmp_path: Path) -> None:
    code = "def main():\n    print('Usage: brew FILE\\n\\nOptions:\\n  --now  At once')\n"
    found = await scan(install(tmp_path, code), tmp_path, sources=("python", "help"))
    (command,) = found.commands
    assert facts(command) == {"--now": "boolean"}
    assert any("--help" in remark for remark in found.remarks)


@pytest.mark.parametrize(
    "script",
    [
        "#!/bin/sh\nfrom a import b\n",
        "#!/usr/bin/python3\nthis is no Python\n",
        "#!/usr/bin/python3\nimport os\nos.system('x')\n",
        "\x7fELF",
    ],
)
def test_other_files_are_no_python_programs(tmp_path: Path, script: str) -> None:
    file = tmp_path / "it"
    file.write_text(script)
    assert find_entry(file) is None


def test_a_script_with_a_long_path_of_its_interpreter_is_recognised(tmp_path: Path) -> None:
    file = tmp_path / "it"
    file.write_text("#!/bin/sh\n'''exec' \"/a long/bin/python3\" \"$0\" \"$@\"\n' '''\nfrom a.b import c\nc()\n")
    assert find_entry(file) == EntryPoint("/a long/bin/python3", "a.b", "c")
