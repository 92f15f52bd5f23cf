"""What is run, and what is not."""

from __future__ import annotations

from pathlib import Path

import pytest

from dynamic_mcp.features.scan.runner import RunLimits
from dynamic_mcp.features.scan.scanner import select
from tests.features.scan.programs import FakeProgram, scan

COBRA = "github.com/spf13/cobra"
ROOT = """\
Usage: brew COMMAND

Commands:
  make    Make some
  water   Work with water

Options:
  --cold   Cold
"""
WATER = """\
Usage: brew water COMMAND

Commands:
  heat    Heat it
"""
TEXTS = {
    "--help": ROOT,
    "make --help": "Usage: brew make NAME\n\nMakes it.\n\nOptions:\n  --cups=N   how many\n",
    "water --help": WATER,
    "water heat --help": "Usage: brew water heat\n\nOptions:\n  --to=DEGREES   how hot\n",
}


async def test_each_command_is_asked_for_help_once(tmp_path: Path) -> None:
    brew = FakeProgram(tmp_path, TEXTS)
    found = await scan(brew.file, tmp_path)
    assert [each.fact.path for each in found.commands] == [(), ("make",), ("water",), ("water", "heat")]
    assert brew.words == [["--help"], ["make", "--help"], ["water", "--help"], ["water", "heat", "--help"]]


async def test_only_commands_that_are_wanted_are_run(tmp_path: Path) -> None:
    brew = FakeProgram(tmp_path, TEXTS)
    found = await scan(brew.file, tmp_path, globs=("water *",))
    assert brew.words == [["--help"], ["water", "--help"], ["water", "heat", "--help"]]
    assert [each.fact.path for each in select(found, ("water *",))] == [("water", "heat")]


async def test_the_depth_is_a_limit(tmp_path: Path) -> None:
    brew = FakeProgram(tmp_path, TEXTS)
    await scan(brew.file, tmp_path, depth=1)
    assert brew.words == [["--help"], ["make", "--help"], ["water", "--help"]]


async def test_the_number_of_runs_is_a_limit_and_a_remark_says_so(tmp_path: Path) -> None:
    brew = FakeProgram(tmp_path, TEXTS)
    found = await scan(brew.file, tmp_path, limits=RunLimits(runs=2))
    assert len(brew.words) == 2
    assert any("limit" in remark for remark in found.remarks)


async def test_the_number_of_bytes_is_a_limit(tmp_path: Path) -> None:
    brew = FakeProgram(tmp_path, TEXTS)
    await scan(brew.file, tmp_path, limits=RunLimits(total_bytes=10))
    assert len(brew.words) == 1


@pytest.mark.posix_only("a script of a shell")
async def test_a_program_that_does_not_end_is_ended(tmp_path: Path) -> None:
    slow = tmp_path / "slow"
    slow.write_text("#!/bin/sh\necho 'Usage: slow FILE'\nexec sleep 600\n")
    slow.chmod(0o755)
    found = await scan(slow, tmp_path, limits=RunLimits(run_s=0.2, runs=1))
    assert [each.fact.path for each in found.commands] == [()]


async def test_it_has_nothing_to_read_no_terminal_and_a_minimal_environment(tmp_path: Path) -> None:
    brew = FakeProgram(tmp_path, {"--help": "Usage: brew NAME"})
    await scan(brew.file, tmp_path, environment={"PATH": "/usr/bin", "SECRET": "x", "PYTHONPATH": "/x", "LANG": "C"})
    (start,) = brew.starts
    env = start["env"]
    assert isinstance(env, dict)
    assert not {"SECRET", "PYTHONPATH"} & env.keys()
    assert env["PAGER"] == "cat"
    assert (start["stdin"], start["files"]) == ("", [])
    assert (start["is_leader"], start["is_terminal"]) == (True, False)


async def test_a_program_that_is_not_made_with_cobra_is_never_asked_to_complete(tmp_path: Path) -> None:
    brew = FakeProgram(tmp_path, TEXTS)
    await scan(brew.file, tmp_path, sources=("complete", "help"))
    assert all("__complete" not in str(words) for words in brew.words)


async def test_only_flags_and_commands_are_completed_never_arguments(tmp_path: Path) -> None:
    answers = {
        "__complete --": "--help\thelp for brew\n--cold\tCold water\n:4\n",
        "__complete ": "make\tMake some\nwater\tWork with water\n:4\n",
        "__complete make --": "--cups\tHow many cups\n:4\n",
    }
    brew = FakeProgram(tmp_path, {**TEXTS, **answers}, comment=COBRA)
    found = await scan(brew.file, tmp_path, sources=("complete", "help"), globs=("make",))
    asked = [words for words in brew.words if isinstance(words, list) and words[0] == "__complete"]
    assert asked == [["__complete", "--"], ["__complete", ""], ["__complete", "make", "--"]]
    (cups,) = found.commands[1].flags
    assert cups.flag.required  # cobra lists nothing but what must be given
    assert cups.source == "cobra's __complete; type: make --help"


async def test_flags_of_all_commands_are_read_where_the_program_says_that_it_lists_them(tmp_path: Path) -> None:
    texts = {
        "--help": 'Options:\n    --cold=false:\n\tCold.\n\nUse "brew options" for a list of global options.\n',
        "options": "The following options can be passed to any command:\n\n    -n, --name='':\n\tWhose it is.\n",
        "__complete --": "--help\thelp for brew\n--name\tWhose it is\n:4\n",
    }
    brew = FakeProgram(tmp_path, texts, comment=COBRA)
    found = await scan(brew.file, tmp_path, sources=("complete", "help"))
    name = next(each.flag for each in found.commands[0].flags if "--name" in each.flag.names)
    assert (name.names, name.value and name.value.type) == (("--name", "-n"), "string")


async def test_short_help_is_tried_only_where_the_program_says_that_it_is_help(tmp_path: Path) -> None:
    brew = FakeProgram(tmp_path, {"--help": ROOT})
    await scan(brew.file, tmp_path, globs=("make",))
    assert brew.words == [["--help"], ["make", "--help"]]


async def test_commands_that_share_one_help_are_not_all_run(tmp_path: Path) -> None:
    text = "Usage: brew COMMAND\n\nCommands:\n" + "".join(f"  verb{n} UNIT...   Does {n}\n" for n in range(9))
    text += "\nOptions:\n  --now   At once\n"
    brew = FakeProgram(tmp_path, {"--help": text, "verb0 --help": text, "verb1 --help": text})
    found = await scan(brew.file, tmp_path)
    assert brew.words == [["--help"], ["verb0", "--help"], ["verb1", "--help"]]
    assert len(found.commands) == 10
    assert all([flag.flag.names for flag in each.flags] == [("--now",)] for each in found.commands)
    last = found.commands[-1].fact
    assert last.words is not None
    assert [(word.name, word.repeatable) for word in last.words] == [("unit", True)]
