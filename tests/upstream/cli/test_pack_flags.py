"""The packs, compared with what the real programs say of themselves."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest

from dynamic_mcp.packs import library
from dynamic_mcp.packs.model import Flag, Pack
from tests.program import BOUND_S
from tests.upstream.cli.program_help import KnownFlag, read_flags
from tests.upstream.cli.programs import require

# Flags that the help of a command does not name.
_UNNAMED = {"terraform": {"-json"}}
PROGRAMS = ("docker", "gh", "helm", "kubectl", "terraform")


def _numbers(text: str) -> tuple[int, ...]:
    found = re.search(r"\d+(?:\.\d+)+", text)
    return tuple(int(each) for each in found[0].split(".")) if found else ()


def _require_version(pack: Pack, environment: dict[str, str]) -> None:
    """Skip where the program is older than the one that the pack was made for."""
    if pack.checked is None:
        return
    words = [require(pack.program), *(pack.version or [])]
    text = subprocess.run(words, env=environment, capture_output=True, text=True, timeout=BOUND_S).stdout
    if _numbers(text) < _numbers(pack.checked):
        pytest.skip(f"`{pack.program}` is older than {pack.checked}")


def _differences(flag: Flag, known: dict[str, KnownFlag]) -> list[str]:
    there = known.get(flag.name)
    if there is None:
        return ["is not known"]
    if not {each for each in flag.aliases if len(each) == 2} <= there.names:
        return [f"has other names: {sorted(there.names)}"]
    is_list = there.kind == "list"
    match there.kind:
        case None:
            return []
        case "integer" | "number" | "boolean" if flag.type != there.kind:
            return [f"is {there.kind}"]
        case "list" | "text" if flag.type in ("boolean", "integer", "number") or (is_list and not flag.repeatable):
            return [f"is {there.kind}"]
    return []


@pytest.mark.full
@pytest.mark.parametrize("program", PROGRAMS)
def test_the_program_has_the_flags_of_its_pack_with_these_types(tmp_path: Path, program: str) -> None:
    require(program)
    pack = library.read_shipped(program)
    environment = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), **pack.environment}
    _require_version(pack, environment)
    wrong = []
    for command in pack.commands:
        known = read_flags(program, command.path, environment)
        flags = [flag for flag in command.flags if flag.name not in _UNNAMED.get(program, ())]
        wrong += [f"{command.name} {flag.name} {each}" for flag in flags for each in _differences(flag, known)]
        fixed = {word.partition("=")[0] for word in command.fixed if word.startswith("-") and word != "-"}
        unknown = fixed - known.keys() - _UNNAMED.get(program, set())
        wrong += [f"{command.name} {word} is not known" for word in unknown]

    assert "\n".join(wrong) == ""
