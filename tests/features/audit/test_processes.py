"""Several processes append at once, and a full disk leaves no half line."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from dynamic_mcp.features.audit import days
from tests.features.audit.audited import read_lines

BOUND_S = 60

APPEND = """
import sys
from pathlib import Path
from dynamic_mcp.features.audit.chain import AuditLine
from dynamic_mcp.features.audit.log import AuditLog
log = AuditLog(Path(sys.argv[1]))
for n in range(500):
    log.append(AuditLine(v=1, id=f"{sys.argv[2]}-{n}", event="call", name="x" * (n % 300)))
"""
FILL = """
import resource, sys
from pathlib import Path
from dynamic_mcp.features.audit.chain import AuditLine
from dynamic_mcp.features.audit.log import AuditLog
log = AuditLog(Path(sys.argv[1]))
line = AuditLine(v=1, id="a", event="call", name="x" * 300)
log.append(line)
resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, resource.RLIM_INFINITY))
written = 1
try:
    while True:
        log.append(line)
        written += 1
except OSError as exc:
    print(written, exc.strerror)
resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
log.append(line)
"""


def start(program: str, *args: str) -> subprocess.Popen[str]:
    return subprocess.Popen([sys.executable, "-c", program, *args], stdout=subprocess.PIPE, text=True)


def test_processes_that_append_at_once_make_one_chain(tmp_path: Path) -> None:
    processes = [start(APPEND, str(tmp_path / "audit"), name) for name in "abc"]
    assert [process.wait(BOUND_S) for process in processes] == [0, 0, 0]
    for process in processes:
        process.communicate()
    lines = read_lines(tmp_path / "audit")
    assert len({line["id"] for line in lines}) == len(lines) == 1500


@pytest.mark.skipif(sys.platform == "win32", reason="needs a limit on the size of files")
def test_a_full_disk_leaves_no_half_line(tmp_path: Path) -> None:
    said, _ = start(FILL, str(tmp_path)).communicate(timeout=BOUND_S)
    written = int(said.split()[0])
    assert len(read_lines(tmp_path)) == written + 1
    (file,) = days.list_files(tmp_path)
    assert b"gap" not in file.read_bytes()
