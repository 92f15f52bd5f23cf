"""JSON is read as a type by any number of threads at once, also when they are the first to do so."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

import dynamic_mcp

# Threads that take turns all the time read JSON as types that are new to msgspec.
RACE = """
import sys, threading
from msgspec import Struct
from dynamic_mcp.system.decoding import decode_as

sys.setswitchinterval(1e-6)
kinds = []
for number in range(200):
    class Part(Struct):
        name: str
        parts: "tuple[Part, ...]" = ()
    class Whole(Struct):
        first: Part
        rest: dict[str, Part] = {}
    kinds.append(Whole)

data = b'{"first":{"name":"a","parts":[{"name":"b"}]},"rest":{"c":{"name":"d"}}}'
together = threading.Barrier(4)

def read():
    for kind in kinds:
        together.wait()
        assert decode_as(data, kind).rest["c"].name == "d"

threads = [threading.Thread(target=read) for _ in range(4)]
for each in threads:
    each.start()
for each in threads:
    each.join()
print("read")
"""
READS = re.compile(r"msgspec\.json\.decode\([^\n]*type=(?!str\b)")


@pytest.mark.skipif(sys.platform == "win32", reason="ends otherwise there")
def test_threads_that_read_a_type_first_and_at_once_all_read_it() -> None:
    done = subprocess.run([sys.executable, "-c", RACE], capture_output=True, timeout=60, check=False)
    assert (done.returncode, done.stdout) == (0, b"read\n"), done.stderr


def test_nothing_reads_json_as_a_type_in_another_way() -> None:
    root = Path(dynamic_mcp.__file__).parent
    found = {
        str(path.relative_to(root)) for path in root.rglob("*.py") if READS.search(path.read_text(encoding="utf-8"))
    }
    assert found == set()
