"""`dynamic-mcp`, and `python -m dynamic_mcp`: a window of a running daemon, or else the command line."""

from __future__ import annotations

import sys

from dynamic_mcp.cli.descriptors import fill_standard

# As in `typing`, which takes longer to load than all of this.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from dynamic_mcp.face.shim import Shim


def main() -> None:
    """Run the command line. A window whose daemon runs needs next to nothing of this program."""
    fill_standard()
    sys.exit(_run())


def _run() -> int:
    left = None
    if sys.platform != "win32":
        from dynamic_mcp.face import window

        left = shim = window.find(sys.argv[1:])
        if shim is not None and (code := _carry(shim)) is not None:
            return code
    from dynamic_mcp.cli.main import run

    return run(sys.argv[1:], left)


def _carry(shim: Shim) -> int | None:
    try:
        return shim.run()
    except KeyboardInterrupt:  # this ends the session, as the end of input does
        return 0


if __name__ == "__main__":
    main()
