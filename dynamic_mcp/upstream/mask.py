"""What a server was given in confidence, made unreadable in what it says."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator

from dynamic_mcp.config.resolved import Program, Remote
from dynamic_mcp.config.secrets import is_secret_name

MASKED = "***"
# Shorter ones are words and numbers that mean something else elsewhere.
_SHORTEST = 6
_IN_URL = re.compile(r"://[^/\s:@]*:([^/\s@]+)@")
_IN_QUERY = re.compile(r"[?&]([^=&#]+)=([^&#]+)")
_OPTION = re.compile(r"-{0,2}([\w.-]+)\s*[=:]\s*(.+)", re.DOTALL)


def mask_of(upstream: Program | Remote) -> Callable[[str], str]:
    """Return what replaces the secrets in the config of a server in a text.

    Secrets are variables, options and headers that are named as secrets are, and passwords in URLs.
    """
    return hiding(_of_program(upstream) if isinstance(upstream, Program) else _of_remote(upstream))


def hiding(secrets: Iterable[str]) -> Callable[[str], str]:
    """Return what replaces these secrets in a text, whole or in their parts."""
    long_enough = {part for secret in secrets for part in _parts(secret) if len(part) >= _SHORTEST}
    if not long_enough:
        return str
    pattern = re.compile("|".join(map(re.escape, sorted(long_enough, key=len, reverse=True))))
    return lambda text: pattern.sub(MASKED, text)


def _of_program(program: Program) -> Iterator[str]:
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


def _of_remote(remote: Remote) -> Iterator[str]:
    for name, value in remote.headers.items():
        if is_secret_name(name):
            yield value
    yield from _IN_URL.findall(remote.url)
    for name, value in _IN_QUERY.findall(remote.url):
        if is_secret_name(name):
            yield value
    if remote.oauth is not None and remote.oauth.client_secret:
        yield remote.oauth.client_secret


def _parts(secret: str) -> Iterator[str]:
    """Yield how a secret may show: whole, line by line, and without the scheme before it."""
    yield secret
    yield from (line.strip() for line in secret.splitlines())
    yield secret.split()[-1] if secret.split() else ""
