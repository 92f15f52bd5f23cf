"""The filter of system calls: its numbers are those of the kernel, and it is one that the kernel takes."""

from __future__ import annotations

import platform
import re
import struct
from pathlib import Path

import pytest

from dynamic_mcp.features.sandbox.seccomp import NUMBERS, Filter

_INSTRUCTION = struct.Struct("HBBI")
_EQUAL, _RETURN = 0x15, 0x06
_HEADERS = {
    0: Path("/usr/include/x86_64-linux-gnu/asm/unistd_64.h"),
    1: Path("/usr/include/asm-generic/unistd.h"),
}

needs_known_machine = pytest.mark.skipif(
    platform.machine() not in ("x86_64", "aarch64"), reason=f"no numbers of {platform.machine()} are known"
)


@pytest.mark.parametrize("column", [0, 1], ids=["x86_64", "aarch64"])
def test_each_number_is_the_one_in_the_headers_of_the_kernel(column: int) -> None:
    if not _HEADERS[column].exists():
        pytest.skip(f"there is no {_HEADERS[column]}")
    text = _HEADERS[column].read_text()
    known = {name: int(number) for name, number in re.findall(r"#define __NR(?:3264)?_(\w+) (\d+)", text)}
    ours = {name: numbers[column] for name, numbers in NUMBERS.items()}
    newer = ours.keys() - known.keys()
    assert {name: number for name, number in ours.items() if name not in newer} == {
        name: known[name] for name in ours.keys() - newer
    }
    assert all(ours[name] is None or int(ours[name] or 0) > 440 or column == 1 for name in newer)


@needs_known_machine
@pytest.mark.parametrize("is_alone", [True, False])
def test_each_jump_leads_to_an_instruction_and_the_end_is_a_result(is_alone: bool) -> None:
    program = Filter(denies_unix_sockets=True, is_alone=is_alone).build()
    lines = [*_INSTRUCTION.iter_unpack(program)]
    assert len(lines) < 4096
    assert lines[-1][0] == _RETURN
    for place, (code, if_true, if_false, _) in enumerate(lines):
        if code != _RETURN:
            assert max(place + 1 + if_true, place + 1 + if_false) < len(lines)


@needs_known_machine
def test_alone_it_denies_more() -> None:
    column = {"x86_64": 0, "aarch64": 1}[platform.machine()]
    fchmod = NUMBERS["fchmod"][column]

    def is_judged(build: Filter) -> bool:
        return any(
            code == _EQUAL and value == fchmod for code, _, _, value in _INSTRUCTION.iter_unpack(build.build())
        )

    assert is_judged(Filter(is_alone=True))
    assert not is_judged(Filter())
