"""`dynamic-mcp`, and `python -m dynamic_mcp`: a window of a running daemon, or else the command line."""

from __future__ import annotations

import os
import sys

_STANDARD = (("stdin", os.O_RDONLY, "r"), ("stdout", os.O_WRONLY, "w"), ("stderr", os.O_WRONLY, "w"))


def main() -> None:
    """Run the command line. A window whose daemon runs needs next to nothing of this program."""
    _fill_standard()
    sys.exit(_run())


def _run() -> int:
    from dynamic_mcp.face import window

    left = shim = window.find(sys.argv[1:])
    if shim is not None and (code := shim.run()) is not None:
        return code
    from dynamic_mcp.cli.main import run

    return run(sys.argv[1:], left)


def _fill_standard() -> None:
    """Open standard descriptors that the parent process has closed on the null device.

    A file opened later would get such a number, and output for stderr would end up in it.
    """
    for number, (name, flags, mode) in enumerate(_STANDARD):
        try:
            os.fstat(number)
        except OSError:
            opened = os.open(os.devnull, flags)
            if opened != number:
                os.dup2(opened, number)
                os.close(opened)
            os.set_inheritable(number, True)  # noqa: FBT003 - takes no keyword
        if getattr(sys, name) is None:
            setattr(sys, name, open(number, mode, encoding="utf-8", closefd=False))  # noqa: SIM115


if __name__ == "__main__":
    main()
