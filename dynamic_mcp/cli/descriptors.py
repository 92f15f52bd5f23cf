"""The three standard descriptors, which whoever starts a program may have closed.

A file that is opened later would get such a number, and what is meant for stderr would be written into it.
"""

from __future__ import annotations

import os
import sys

_STANDARD = (("stdin", os.O_RDONLY, "r"), ("stdout", os.O_WRONLY, "w"), ("stderr", os.O_WRONLY, "w"))


def fill_standard() -> None:
    """Open those that are closed on the null device: there is nothing to read, and what is written goes nowhere."""
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
