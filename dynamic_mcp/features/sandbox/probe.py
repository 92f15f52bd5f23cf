"""Tries the sandboxes of a config, for `doctor`: a small program in each attempts what it must not be able to do."""

from __future__ import annotations

import json
import os
import socket
import sys
import tempfile
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from dynamic_mcp.config.confinement import CannotConfine
from dynamic_mcp.config.keys import format_path
from dynamic_mcp.config.resolved import Config, Program
from dynamic_mcp.doctor.findings import Finding, Level, config_error
from dynamic_mcp.features.sandbox.confinement import SandboxConfinement
from dynamic_mcp.system import paths
from dynamic_mcp.upstream.cli.run import run

_WITHIN_S = 30.0
_OUTPUT_BYTES = 100_000
# Prints the names of the attempts that succeeded. It imports no more than it must: nothing of ours, and no packages.
_ATTEMPTS = """
import json, os, socket, sys
folder, pid, port = "/" + sys.argv[1], int(sys.argv[2]), int(sys.argv[3])  # a path it would be given to read
def connect(family, address):
    with socket.socket(family, socket.SOCK_STREAM) as client:
        client.settimeout(2)
        client.connect(address)
attempts = {
    "writing": lambda: open(folder + "/file", "w").close(),
    "changing modes": lambda: os.chmod(folder + "/file", 0o600),
    "reading": lambda: open(folder + "/file").close(),
    "signals": lambda: os.kill(pid, 0),
    "sockets": lambda: connect(socket.AF_UNIX, folder + "/socket"),
    "network": lambda: connect(socket.AF_INET, ("127.0.0.1", port)),
    "inspecting": lambda: open("/proc/%d/environ" % pid).read(),
}
done = []
for name, attempt in attempts.items():
    try:
        attempt()
    except OSError:
        pass
    else:
        done.append(name)
print(json.dumps(done))
"""


async def probe(config: Config) -> list[Finding]:
    """Return what the sandbox of each server holds back."""
    return [
        await _try(group.name, group.confinement)
        for group in config.groups
        if isinstance(group.confinement, SandboxConfinement)
    ]


async def _try(server: str, words: SandboxConfinement) -> Finding:
    where = format_path(("mcpServers", server, "sandbox"))
    if words.container is not None:
        return Finding(Level.NOTE, where, f"is a container of `{words.container}`, which is not tried")
    try:
        trial = await try_sandbox(words)
    except CannotConfine as exc:
        return config_error(where, f"cannot be enforced: {exc}", exc.hint)
    except OSError as exc:
        return config_error(where, f"cannot be tried: {exc}")
    if trial.failed:
        level = Level.WARNING if words.best_effort else Level.ERROR
        return Finding(level, where, f"does not hold back {', '.join(trial.failed)}", exit_code=1)
    return Finding(Level.OK, where, f"holds back, as was tried: {', '.join(trial.held)}")


class Trial(Struct, frozen=True):
    """What a sandbox held back, and what it should have held back and did not."""

    held: list[str]
    failed: list[str]


async def try_sandbox(words: SandboxConfinement) -> Trial:
    """Start a program confined by these words, and return what it could do. Raises OSError if it cannot."""
    expected = ["writing", "changing modes", "signals", "sockets", "inspecting"]
    if words.read is not None:
        expected.append("reading")
    if words.hosts is not None:
        expected.append("network")
    with ExitStack() as stack:
        paths.make_private_dir(paths.cache_dir())
        folder = Path(
            stack.enter_context(tempfile.TemporaryDirectory(dir=paths.cache_dir(), prefix="sandbox-trial-"))
        )
        (folder / "file").touch()
        port = _listen(folder / "socket", stack)
        arguments = ("-I", "-S", "-c", _ATTEMPTS, str(folder)[1:], str(os.getpid()), str(port))
        done = await _run(replace(words, write=(), roots=()), arguments)
    return Trial([each for each in expected if each not in done], [each for each in expected if each in done])


def _listen(path: Path, stack: ExitStack) -> int:
    """Listen on a socket of the file system and on a port of this machine, and return the port."""
    for family, address in ((socket.AddressFamily["AF_UNIX"], os.fspath(path)), (socket.AF_INET, ("127.0.0.1", 0))):
        listener = stack.enter_context(socket.socket(family))
        listener.bind(address)
        listener.listen()
    port: int = listener.getsockname()[1]
    return port


async def _run(words: SandboxConfinement, arguments: tuple[str, ...]) -> list[str]:
    environment: Mapping[str, str] = {"PATH": os.environ.get("PATH", os.defpath)}
    program = Program(sys.executable, arguments, environment, "/", confinement=words)
    result = await run(program, stdin=None, timeout_s=_WITHIN_S, output_limit=_OUTPUT_BYTES)
    if result.code != 0:
        raise OSError(result.stderr.text().strip().rpartition("\n")[2] or result.stopped or f"code {result.code}")
    return list(json.loads(result.stdout.text()))
