"""The entry point, and the one place where an error becomes a message on stderr and an exit code."""

from __future__ import annotations

import errno
import gc
import io
import os
import sys
from typing import TYPE_CHECKING

from dynamic_mcp.cli.command_names import is_command, looks_like_a_command
from dynamic_mcp.config.location import split_profile
from dynamic_mcp.errors import DynamicMcpError

if TYPE_CHECKING:
    from dynamic_mcp.face.shim import Shim

_FULL = {errno.ENOSPC, errno.EDQUOT}
_INTERRUPTED = 130  # 128 + SIGINT, as shells have it


def run(args: list[str], left: Shim | None = None) -> int:
    """Run one command and return its exit code; `left` is the shim of a window that has lost its daemon."""
    for stream in (sys.stdin, sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            _set_encoding(stream)
    try:
        code = _run(args) if left is None else _go_on_alone(left)
        sys.stdout.flush()
    except DynamicMcpError as exc:
        return _report(str(exc), exc.exit_code)
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr, flush=True)  # noqa: T201
        return _INTERRUPTED
    except OSError as exc:
        if _is_broken_pipe(exc):  # the reader of our output has closed it
            _close_stdout()
            return 1
        return _report_os_error(exc)
    return code


def _set_encoding(stream: io.TextIOWrapper) -> None:
    # characters that a terminal's encoding lacks show as escapes; odd bytes of an answer are read the same way
    errors = "backslashreplace"
    stream.reconfigure(errors=errors)
    if sys.platform == "win32" and not (stream.isatty() or "PYTHONIOENCODING" in os.environ):
        # pipes and files would have the code page of Windows, which lacks most characters, and its line breaks
        if stream is sys.stdin:
            stream.reconfigure(encoding="utf-8-sig", errors=errors)
        else:
            stream.reconfigure(encoding="utf-8", errors=errors, newline="\n")


def _run(args: list[str]) -> int:
    words, profile = split_profile(args)
    if not _is_config_alone(words):
        from dynamic_mcp.cli.command_group import invoke

        return invoke(args)
    if not args and sys.stdin.isatty() and sys.stdout.isatty():
        from dynamic_mcp.cli.wizard import offer_setup

        if (code := offer_setup()) is not None:
            return code
    gc.disable()  # objects loaded at start stay alive, so collecting only costs time; serving enables it again
    try:
        from dynamic_mcp.cli.startup import serve

        return serve(words[0] if words else None, profile=profile)
    finally:
        gc.enable()


def _go_on_alone(left: Shim) -> int:
    from dynamic_mcp.cli.startup import go_on_alone

    return go_on_alone(left)


def _is_config_alone(args: list[str]) -> bool:
    """Return whether to serve with no option but a profile, as AI tools do: that start does not need click."""
    if "_DYNAMIC_MCP_COMPLETE" in os.environ or len(args) > 1:
        return False
    return not args or not (args[0].startswith("-") or looks_like_a_command(args[0]) or is_command(args[0]))


def _is_broken_pipe(exc: OSError) -> bool:
    """Return whether this is the error of a closed pipe: on Windows, EINVAL may stand for EPIPE.

    https://github.com/python/cpython/issues/79935
    """
    is_windows_pipe = sys.platform == "win32" and exc.errno == errno.EINVAL and exc.filename is None
    return is_windows_pipe or isinstance(exc, BrokenPipeError)


def _report_os_error(exc: OSError) -> int:
    """Report an error of the system, such as a denied access or a full disk."""
    from dynamic_mcp.system.text import os_reason

    what, why = os.fsdecode(exc.filename or ""), os_reason(exc)
    if exc.errno in _FULL or not what:
        _close_stdout()
        return _report(f"cannot be written: {why}" if exc.errno in _FULL else f"the system refused: {why}", 1)
    return _report(f"{what}: {why}", 1)


def _close_stdout() -> None:
    """Discard output that is still buffered, so that the exit does not fail as well."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _report(message: str, code: int) -> int:
    from dynamic_mcp.system.text import escape

    print("error: " + escape(message, keep="\n"), file=sys.stderr, flush=True)  # noqa: T201
    return code
