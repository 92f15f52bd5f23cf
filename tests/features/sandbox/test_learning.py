"""`dynamic-mcp sandbox learn`: what a server has used becomes the words of its sandbox."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from dynamic_mcp.config.resolved import Program
from dynamic_mcp.features.sandbox.learned import Learned, learn_from
from dynamic_mcp.features.sandbox.words import Restrictions
from tests.program import BOUND_S, UPSTREAMS

if sys.platform != "linux":
    pytest.skip("only Linux confines programs", allow_module_level=True)

HOME = "/home/me"


def text(value: str | bytes) -> str:
    """Return a text as `strace -xx` writes it."""
    data = value.encode() if isinstance(value, str) else value
    return '"' + "".join(f"\\x{byte:02x}" for byte in data) + '"'


def learn(*lines: str) -> Learned:
    words = Restrictions("notes", home=HOME, read=())
    return learn_from([f"{line}\n".encode() for line in lines], words, Program("/bin/cat", (), {}, "/srv/work"))


def question(name: str) -> bytes:
    labels = b"".join(bytes([len(each)]) + each.encode() for each in name.split("."))
    return b"\x12\x34\x01\x00\x00\x01\x00\x00\x00\x00\x00\x00" + labels + b"\x00\x00\x01\x00\x01"


def test_what_it_opened_becomes_the_directories_that_it_reads_and_writes() -> None:
    learned = learn(
        f"12 openat(AT_FDCWD, {text('/srv/data/a/x.txt')}, O_RDONLY|O_CLOEXEC) = 3",
        f"12 openat(AT_FDCWD, {text('/srv/data/y.txt')}, O_RDONLY) = 3",
        f"12 openat(AT_FDCWD, {text('/srv/missing')}, O_RDONLY) = -1 ENOENT (No such file or directory)",
        f"13 openat(AT_FDCWD, {text('/srv/out/z.txt')}, O_WRONLY|O_CREAT, 0666) = 4",
        f"13 renameat2(AT_FDCWD, {text('/srv/b/old')}, AT_FDCWD, {text('/srv/b/new')}, 0) = 0",
        f"13 openat(AT_FDCWD, {text('/usr/lib/libc.so.6')}, O_RDONLY) = 3",
        f"13 openat(AT_FDCWD, {text('/proc/self/status')}, O_RDONLY) = 3",
        "13 +++ exited with 0 +++",
    )
    assert (learned.read, learned.write) == (["/srv/data"], ["/srv/b", "/srv/out"])


def test_the_home_itself_is_never_proposed() -> None:
    learned = learn(f"12 openat(AT_FDCWD, {text('/home/me/.netrc')}, O_RDONLY) = 3")
    assert learned.read == ["/home/me/.netrc"]


def test_the_names_that_it_asked_for_become_its_hosts() -> None:
    learned = learn(
        f"12 sendto(5, {text(question('api.example.com'))}, 33, MSG_NOSIGNAL, NULL, 0) = 33",
        "12 connect(5, {sa_family=AF_INET, sin_port=htons(53), sin_addr=inet_addr("
        + text("10.0.0.1")
        + ")}, 16) = 0",
        "12 connect(6, {sa_family=AF_INET, sin_port=htons(8443), sin_addr=inet_addr("
        + text("1.2.3.4")
        + ")}, 16) = 0",
    )
    assert (learned.hosts, learned.addresses) == (["api.example.com:8443"], [])


def test_an_address_without_a_name_and_a_socket_are_told() -> None:
    learned = learn(
        "12 connect(6, {sa_family=AF_INET, sin_port=htons(443), sin_addr=inet_addr("
        + text("1.2.3.4")
        + ")}, 16) = -1",
        "12 connect(7, {sa_family=AF_UNIX, sun_path=" + text("/run/docker.sock") + "}, 110) = 0",
    )
    assert (learned.hosts, learned.addresses, learned.sockets) == ([], ["1.2.3.4:443"], ["/run/docker.sock"])


@pytest.mark.skipif(shutil.which("strace") is None, reason="there is no `strace`")
def test_the_command_watches_a_server_and_prints_its_words(tmp_path: Path) -> None:
    server = tmp_path / "server.py"
    server.write_text(f"exec(open({str(UPSTREAMS / 'tiny.py')!r}).read())")
    entry = {"command": sys.executable, "args": ["-I", "-S", str(server)], "cwd": "/"}
    config = tmp_path / "config.json"
    config.write_text(json.dumps({"mcpServers": {"notes": entry}}))
    words = ["sandbox", "learn", "-c", str(config), "notes", "echo", "text=hi"]
    done = subprocess.run(
        [sys.executable, "-m", "dynamic_mcp", *words], capture_output=True, timeout=BOUND_S, check=False
    )
    assert done.returncode == 0, done.stderr.decode()
    proposal = json.loads(done.stdout)["sandbox"]
    assert str(UPSTREAMS) in proposal["read"]
    assert proposal["hosts"] == []


def test_a_server_that_is_no_program_is_refused(tmp_path: Path) -> None:
    config = tmp_path / "config.json"
    config.write_text(json.dumps({"mcpServers": {"far": {"url": "http://127.0.0.1:9/mcp"}}}))
    words = ["sandbox", "learn", "-c", str(config), "far"]
    done = subprocess.run(
        [sys.executable, "-m", "dynamic_mcp", *words], capture_output=True, timeout=BOUND_S, check=False
    )
    assert done.returncode != 0
    assert b"no server that runs as a program" in done.stderr
