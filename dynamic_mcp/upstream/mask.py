"""What a program was given in confidence, made unreadable in what it says."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

from dynamic_mcp.config.resolved import Program
from dynamic_mcp.config.secrets import is_secret_name

MASKED = "***"
# Shorter ones are words and numbers that mean something else elsewhere.
_SHORTEST = 6
_IN_URL = re.compile(r"://[^/\s:@]*:([^/\s@]+)@")
_OPTION = re.compile(r"-{0,2}([\w.-]+)\s*[=:]\s*(.+)", re.DOTALL)


def mask_of(program: Program) -> Callable[[str], str]:
    """Return what replaces the program's secrets in a text.

    Secrets are variables and options that are named as secrets are, and passwords in URLs.
    """
    secrets = {part for secret in _secrets(program) for part in _parts(secret) if len(part) >= _SHORTEST}
    if not secrets:
        return str
    pattern = re.compile("|".join(map(re.escape, sorted(secrets, key=len, reverse=True))))
    return lambda text: pattern.sub(MASKED, text)


def _secrets(program: Program) -> Iterator[str]:
    for name, value in program.env.items():
        if is_secret_name(name):
            yield value
    before = ""
    for arg in program.args:
        option = _OPTION.fullmatch(arg)
        if option and is_secret_name(option[1]):
            yield option[2]
        elif before.startswith("-") and "=" not in before and is_secret_name(before):
            yield arg
        before = arg
    for text in (*program.env.values(), *program.args):
        yield from _IN_URL.findall(text)


def _parts(secret: str) -> Iterator[str]:
    """Yield how a secret may show: whole, line by line, and without the scheme before it."""
    yield secret
    yield from (line.strip() for line in secret.splitlines())
    yield secret.split()[-1] if secret.split() else ""
