"""Sends seals to where they cannot be changed together with the log: the system log, or a program."""

from __future__ import annotations

import logging
import socket
import subprocess
from collections.abc import Sequence
from logging.handlers import SysLogHandler
from pathlib import Path

_COMMAND_WITHIN_S = 30.0
_MAX_SHOWN = 300
# Where the system log listens: Linux and the BSDs, macOS.
_SYSLOG_SOCKETS = ("/dev/log", "/var/run/syslog")


class DeliveryError(Exception):
    """A seal was not delivered."""


def find_syslog() -> str:
    """Return the socket of the system log. Raises DeliveryError."""
    found = next((path for path in _SYSLOG_SOCKETS if Path(path).exists()), None)
    if found is None:
        raise DeliveryError("this machine has no system log")
    return found


def send_to_syslog(text: str, address: str) -> None:
    """Send a line to the system log at a socket. Raises DeliveryError."""
    try:
        handler = _Syslog(address)
    except OSError as exc:
        raise DeliveryError(f"{address}: {exc}") from None
    try:
        handler.ident = "dynamic-mcp: "
        handler.emit(logging.LogRecord("audit", logging.INFO, "", 0, text, None, None))
    finally:
        handler.close()


def run_command(command: Sequence[str], data: bytes, *, within_s: float = _COMMAND_WITHIN_S) -> None:
    """Run a program with some bytes as its stdin, within a bound. Raises DeliveryError."""
    try:
        done = subprocess.run(
            command, input=data, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, timeout=within_s, check=False
        )
    except (OSError, ValueError) as exc:
        raise DeliveryError(f"`{command[0]}`: {exc}") from None
    except subprocess.TimeoutExpired:
        raise DeliveryError(f"`{command[0]}` took longer than {within_s:g} s") from None
    if done.returncode:
        said = done.stderr[-_MAX_SHOWN:].decode(errors="replace").strip()
        raise DeliveryError(f"`{command[0]}` ended with {done.returncode}{said and f': {said!r}'}")


class _Syslog(SysLogHandler):
    def __init__(self, address: str) -> None:
        super().__init__(address, SysLogHandler.LOG_AUTH, socket.SOCK_DGRAM)

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802 - the library's name
        """Raise what has happened: DeliveryError."""
        raise DeliveryError("the system log does not take it")
