"""Faults of the start, or of the whole life: each mode changes a server before it serves."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .odd import Request, Server

if TYPE_CHECKING or __package__:
    from .odd_faults import FOREVER_S
else:
    from odd_faults import FOREVER_S

Mode = Callable[["Server", str], None]

MODES: dict[str, Mode] = {}


def mode(function: Mode) -> Mode:
    """Register a mode under its function's name; its second argument is the command line's ARGUMENT."""
    MODES[function.__name__] = function
    return function


def made_up_tool(name: object, description: str = "A tool that answers its own name.") -> dict[str, Any]:
    """An entry of a tool list, for a tool that has no code."""
    return {"name": name, "description": description, "inputSchema": {"type": "object"}}


@mode
def ok(server: Server, argument: str) -> None:
    """No fault (the default)."""


@mode
def exit_at_start(server: Server, argument: str) -> None:
    """Writes two lines on stderr and exits with code 3."""
    sys.stderr.write("odd: cannot start\nodd: ODD_TOKEN is not set\n")
    sys.exit(3)


@mode
def flaky(server: Server, argument: str) -> None:
    """Exits with code 1 unless the file ARGUMENT exists, and makes it: the second start works."""
    try:
        os.close(os.open(argument, os.O_CREAT | os.O_EXCL))
    except FileExistsError:
        return
    sys.exit(1)


@mode
def exit_in_init(server: Server, argument: str) -> None:
    """Exits before it answers `initialize`."""
    server.handlers["initialize"] = lambda request: sys.exit(0)


@mode
def exit_after_init(server: Server, argument: str) -> None:
    """Exits after it answered `initialize`."""

    def initialize(request: Request) -> None:
        server.initialize(request)
        sys.exit(0)

    server.handlers["initialize"] = initialize


@mode
def hang_init(server: Server, argument: str) -> None:
    """Does not answer `initialize`."""
    server.handlers["initialize"] = lambda request: None


@mode
def slow_init(server: Server, argument: str) -> None:
    """Answers `initialize` after ARGUMENT seconds."""

    def initialize_later(request: Request) -> None:
        server.later(float(argument), lambda: server.initialize(request))

    server.handlers["initialize"] = initialize_later


@mode
def hang_list(server: Server, argument: str) -> None:
    """Does not answer `tools/list`."""
    server.handlers["tools/list"] = lambda request: None


@mode
def fail_list(server: Server, argument: str) -> None:
    """Refuse to list tools, as a server without network does."""
    server.handlers["tools/list"] = lambda request: server.refuse(request, -32603, argument or "no network")


@mode
def slow_list(server: Server, argument: str) -> None:
    """Answers `tools/list` after ARGUMENT seconds."""

    def list_later(request: Request) -> None:
        server.later(float(argument), lambda: server.answer_list(request, server.listed))

    server.handlers["tools/list"] = list_later


@mode
def exit_after_list(server: Server, argument: str) -> None:
    """Exits after it answered `tools/list`."""

    def list_and_exit(request: Request) -> None:
        server.answer_list(request, server.listed)
        sys.exit(0)

    server.handlers["tools/list"] = list_and_exit


@mode
def deaf(server: Server, argument: str) -> None:
    """Does not read its stdin at all."""
    time.sleep(FOREVER_S)


@mode
def garbage_for_ever(server: Server, argument: str) -> None:
    """Writes lines that are no messages, and nothing else, until its stdout is closed."""
    while True:
        server.write(b"[INFO] still starting {not json}\n" * 100)
        time.sleep(0.001)


@mode
def slow_eof(server: Server, argument: str) -> None:
    """Needs ARGUMENT seconds to end when its stdin does."""
    server.at_end = lambda: time.sleep(float(argument))


@mode
def long_description(server: Server, argument: str) -> None:
    """Lists a tool whose description has ARGUMENT bytes, after its own."""
    server.listed.append(made_up_tool("talkative", "D" * int(argument)))


@mode
def init_error(server: Server, argument: str) -> None:
    """Answers `initialize` with an error that says ARGUMENT, with each `$NAME` in it filled in."""
    why = os.path.expandvars(argument) or "no more licences"
    server.handlers["initialize"] = lambda request: server.refuse(request, -32603, why)


@mode
def wrong_version(server: Server, argument: str) -> None:
    """Answers `initialize` with a protocol version that does not exist."""
    server.hello["protocolVersion"] = "1999-01-01"


@mode
def instructions(server: Server, argument: str) -> None:
    """Has ARGUMENT as its instructions."""
    server.hello["instructions"] = argument


@mode
def title(server: Server, argument: str) -> None:
    """Has ARGUMENT as its title."""
    server.hello["serverInfo"]["title"] = argument


@mode
def no_tools(server: Server, argument: str) -> None:
    """Has no tools: no capability, and `tools/list` is not found."""
    server.hello["capabilities"] = {}
    del server.handlers["tools/list"], server.handlers["tools/call"]


@mode
def undeclared(server: Server, argument: str) -> None:
    """Answers `initialize` with `{}`, and has a resource and a prompt; with an ARGUMENT, these and no tools."""
    results = {
        "initialize": b"{}",
        "resources/list": b'{"resources": [{"uri": "odd://a", "name": "a"}]}',
        "prompts/list": b'{"prompts": [{"name": "greet"}]}',
        "resources/read": b'{"contents": [{"uri": "odd://a", "text": "of a"}]}',
        "prompts/get": b'{"messages": []}',
    }
    server.handlers |= dict.fromkeys(results, lambda request: server.answer(request, results[request.method]))
    if argument:
        del server.handlers["tools/list"], server.handlers["tools/call"]


@mode
def paged(server: Server, argument: str) -> None:
    """Lists its tools in pages of two."""

    def list_page(request: Request) -> None:
        start = int(request.params.get("cursor", "0"))
        end = start + 2
        server.answer_list(
            request, server.listed[start:end], next_cursor=str(end) if end < len(server.listed) else None
        )

    server.handlers["tools/list"] = list_page


@mode
def endless_pages(server: Server, argument: str) -> None:
    """Lists one more tool and one more page for ever; with an ARGUMENT, that is the cursor each time."""

    def list_page(request: Request) -> None:
        number = len(server.listed) + 1
        server.listed.append(made_up_tool(f"tool_{number}"))
        server.answer_list(request, server.listed[-1:], next_cursor=argument or str(number))

    server.listed.clear()
    server.handlers["tools/list"] = list_page


@mode
def bad_tools(server: Server, argument: str) -> None:
    """Lists entries that are no tools after its own."""
    nameless = made_up_tool(None)
    del nameless["name"]
    string_schema = made_up_tool("string_schema") | {"inputSchema": "object"}
    no_schema = {"name": "no_schema"}
    again = made_up_tool("echo", "The second tool of this name.")
    not_objects: list[object] = [None, 7, "tool", []]
    bad_names = [nameless, made_up_tool(7), made_up_tool("")]
    server.listed += [*not_objects, *bad_names, string_schema, no_schema, again]


@mode
def many(server: Server, argument: str) -> None:
    """Lists ARGUMENT tools, `tool_1` and so on, after its own."""
    server.listed += [made_up_tool(f"tool_{number}") for number in range(1, int(argument) + 1)]


@mode
def banner(server: Server, argument: str) -> None:
    """Prints a banner on stdout before the protocol, and ARGUMENT with each `$NAME` in it filled in."""
    server.write(b"\n> odd@1.0.0 start\n> node index.js\n\nListening on stdio...\n")
    server.write(os.path.expandvars(argument).encode() + b"\n")


@mode
def stderr_first(server: Server, argument: str) -> None:
    """Writes 8 MB on stderr before it reads anything."""
    sys.stderr.write(("E" * 1023 + "\n") * 8192)
    sys.stderr.flush()


@mode
def ignore_eof(server: Server, argument: str) -> None:
    """Lives on when its stdin ends; SIGTERM ends it."""
    server.at_end = lambda: time.sleep(FOREVER_S)


@mode
def ignore_term(server: Server, argument: str) -> None:
    """Lives on when its stdin ends, and after SIGTERM."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    server.at_end = lambda: time.sleep(FOREVER_S)


@mode
def grandchild(server: Server, argument: str) -> None:
    """Has a child that sleeps, holds the pipes and outlives it; the tool `process` tells its pid."""
    import subprocess  # costly, and only wanted here

    child = subprocess.Popen([sys.executable, "-c", f"import time; time.sleep({FOREVER_S})"])
    server.grandchild = child.pid


@mode
def family(server: Server, argument: str) -> None:
    """Like `ignore_term`, and has a child that does the same and holds the pipes; `process` tells its pid."""
    import subprocess

    ignore_term(server, argument)
    code = (
        f"import signal, time; signal.signal(15, signal.SIG_IGN); print(end='.', flush=True); time.sleep({FOREVER_S})"
    )
    child = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE)
    assert child.stdout is not None
    child.stdout.read(1)  # it ignores SIGTERM from here on
    server.grandchild = child.pid


@mode
def daemon(server: Server, argument: str) -> None:
    """Has a grandchild in a session of its own, whose parent has ended; `process` tells its pid.

    With an argument, the environment of the grandchild is empty.
    """
    import subprocess

    grandchild = f"import os, time; print(os.getpid(), flush=True); os.close(1); time.sleep({FOREVER_S})"
    leave = "import os, sys; os.setsid(); os.fork() and os._exit(0)"
    environment = "{}" if argument else "os.environ"
    code = f"{leave}; os.execve(sys.executable, ['python', '-c', {grandchild!r}], {environment})"
    child = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE)
    assert child.stdout is not None
    server.grandchild = int(child.stdout.readline())
    child.wait()


@mode
def hidden(server: Server, argument: str) -> None:
    """Like `ignore_term`, with a child in a session of its own and an empty environment; `process` tells its pid."""
    import subprocess

    ignore_term(server, argument)
    code = f"import time; time.sleep({FOREVER_S})"
    child = subprocess.Popen([sys.executable, "-c", code], env={}, start_new_session=True, stdout=subprocess.DEVNULL)
    server.grandchild = child.pid


@mode
def tells(server: Server, argument: str) -> None:
    """Writes ARGUMENT on stderr, with each `$NAME` in it filled in, and exits with code 3."""
    sys.stderr.write(os.path.expandvars(argument) + "\n")
    sys.exit(3)
