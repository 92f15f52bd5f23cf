"""Runs a program confined, as this user or as another one, and prints what it printed: a process of its own.

Its arguments are the words of the sandbox and the program, as JSON, and the id of the user to become.
"""

import asyncio
import json
import os
import sys
from importlib import import_module

import msgspec

from dynamic_mcp.config.resolved import Program
from dynamic_mcp.features.sandbox.confinement import SandboxConfinement
from dynamic_mcp.upstream.cli.run import run

LATER = (
    *("ctypes", "importlib.readers", "resource", "shutil", "tempfile"),
    *("dynamic_mcp.features.sandbox.launching", "dynamic_mcp.upstream.process.group"),
)


def main() -> None:
    words, program = json.loads(sys.argv[1]), json.loads(sys.argv[2])
    for name in LATER:  # another user may not read the files of this Python
        import_module(name)
    asyncio.run(run(Program("/bin/true", (), {}, None), stdin=None, timeout_s=60, output_limit=1000))  # as above
    if len(sys.argv) > 3:
        os.setgroups([])
        os.setresgid(*[int(sys.argv[3])] * 3)
        os.setresuid(*[int(sys.argv[3])] * 3)
    confinement = msgspec.convert(words, SandboxConfinement) if words is not None else None
    started = Program(
        program["command"], tuple(program["args"]), dict(os.environ), program["cwd"], confinement=confinement
    )
    try:
        result = asyncio.run(run(started, stdin=None, timeout_s=60, output_limit=1_000_000))
    except OSError as exc:
        print(json.dumps({"error": f"{type(exc).__name__}: {exc}", "hint": getattr(exc, "hint", "")}))
        return
    print(json.dumps({"code": result.code, "stdout": result.stdout.text(), "stderr": result.stderr.text()}))


if __name__ == "__main__":
    main()
