"""Run a program on a terminal of its own, and draw what it shows as an SVG.

python docs/record.py docs/quickstart.svg examples/quickstart.py
"""

from __future__ import annotations

import io
import os
import pty
import struct
import subprocess
import sys
import termios
from fcntl import ioctl
from pathlib import Path

from rich.console import Console
from rich.text import Text

COLUMNS = 128
TEMPLATE = """\
<svg viewBox="0 0 {width} {height}" xmlns="http://www.w3.org/2000/svg" role="img">
  <style>
    .{unique_id}-matrix {{ font-family: Menlo, Consolas, "DejaVu Sans Mono", monospace; font-size: {char_height}px; }}
    .{unique_id}-title {{ font-family: sans-serif; font-size: 18px; font-weight: bold; }}
{styles}
  </style>
  <defs>
    <clipPath id="{unique_id}-clip-terminal">
      <rect x="0" y="0" width="{terminal_width}" height="{terminal_height}"/>
    </clipPath>
    {lines}
  </defs>
  {chrome}
  <g transform="translate({terminal_x}, {terminal_y})" clip-path="url(#{unique_id}-clip-terminal)">
    {backgrounds}
    <g class="{unique_id}-matrix">
    {matrix}
    </g>
  </g>
</svg>
"""


def main() -> int:
    """Write the drawing of one command of this Python."""
    target, *command = sys.argv[1:]
    shown = run([sys.executable, *command]).replace(str(Path.cwd()), "/home/you/dynamic-mcp")
    words = " ".join(["python", *command])
    Path(target).write_text(draw(f"$ {words}\n{shown}", title=words), encoding="utf-8")
    return 0


def run(command: list[str]) -> str:
    """Run a command on a terminal; return what it shows there. Raises CalledProcessError if it fails."""
    ours, its = pty.openpty()
    ioctl(its, termios.TIOCSWINSZ, struct.pack("HHHH", 60, COLUMNS, 0, 0))
    with subprocess.Popen(command, stdin=its, stdout=its, stderr=its, close_fds=True) as process:
        os.close(its)
        shown = b""
        while chunk := _read(ours):
            shown += chunk
    os.close(ours)
    text = shown.decode().replace("\r\n", "\n")
    if process.returncode:
        raise subprocess.CalledProcessError(process.returncode, command, output=text)
    return text


def _read(descriptor: int) -> bytes:
    try:
        return os.read(descriptor, 65536)
    except OSError:  # Linux: the program has closed the terminal
        return b""


def draw(shown: str, *, title: str) -> str:
    """Return what a terminal shows, with its colours, as an SVG that loads nothing."""
    console = Console(record=True, width=COLUMNS, file=io.StringIO(), force_terminal=True)
    console.print(Text.from_ansi(shown.rstrip()))
    return console.export_svg(title=title, code_format=TEMPLATE, unique_id="terminal")


if __name__ == "__main__":
    sys.exit(main())
