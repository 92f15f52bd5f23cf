"""Flags that may run programs, write files or delete them are named for the reviewer and held back until then."""

from __future__ import annotations

import pytest

from dynamic_mcp.features.scan.facts import CommandFact, FlagFact, ValueFact
from dynamic_mcp.features.scan.merge import merge
from dynamic_mcp.features.scan.pack_builder import build_pack, find_danger


def flag(*names: str, description: str = "") -> FlagFact:
    return FlagFact(names=names, description=description, value=ValueFact(type="string"))


@pytest.mark.parametrize(
    "dangerous",
    [
        flag("--to-command", description="pipe extracted files to another program"),
        flag("-I", "--use-compress-program"),
        flag("--checkpoint-action"),
        flag("--rsh-command"),
        flag("--upload-pack"),
        flag("--exec"),
        flag("-x", "--execdir"),
        flag("--pre-hook"),
        flag("--editor"),
        flag("-F", description="Run this script at the end of each tape"),
        flag("-o", "--output"),
        flag("--log-file"),
        flag("-w", description="Write the result to a file."),
        flag("--remove-files"),
        flag("--config"),
    ],
    ids=lambda each: each.names[-1],
)
def test_a_flag_that_may_do_harm_is_found(dangerous: FlagFact) -> None:
    assert find_danger(dangerous)


@pytest.mark.parametrize(
    "harmless",
    [
        flag("--max-count", description="stop after NUM lines"),
        flag("-v", "--verbose", description="explain what is being done"),
        flag("--author", description="only commits of this author"),
        flag("--sort", description="how to sort"),
        flag("--format", description="the format of each line"),
        flag("--since", description="only what is newer"),
        flag("--recursive", description="descend into directories"),
    ],
    ids=lambda each: each.names[-1],
)
def test_a_flag_that_only_reads_is_not(harmless: FlagFact) -> None:
    assert find_danger(harmless) == ""


def test_a_pack_of_a_scan_is_not_reviewed_and_its_paths_are_paths() -> None:
    fact = CommandFact(source="--help", flags=(flag("-f", "--file"), flag("--to-command")), words=())
    built = build_pack("tar", [merge([fact])], description="", source="a scan")
    assert built is not None
    assert not built.pack.reviewed
    by_name = {each.name: each for each in built.pack.commands[0].flags}
    assert by_name["--file"].type == "path"
    assert by_name["--file"].danger is None
    assert by_name["--to-command"].danger == "may run a program"
