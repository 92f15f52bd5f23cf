"""Replaces the secrets of a server's config in what the server says."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator

from dynamic_mcp.config.resolved import Program, Remote
from dynamic_mcp.config.secrets import is_secret_name

MASKED = "***"
# Shorter values are often ordinary words and numbers.
_SHORTEST = 6
_IN_URL = re.compile(r"://[^/\s:@]*:([^/\s@]+)@")
_IN_QUERY = re.compile(r"[?&]([^=&#]+)=([^&#]+)")
_OPTION = re.compile(r"-{0,2}([\w.-]+)\s*[=:]\s*(.+)", re.DOTALL)


def mask_of(upstream: Program | Remote) -> Callable[[str], str]:
    """Return a function that masks the secrets of a server's config in a text.

    Secrets are the values of variables, options and headers with the names of secrets, and passwords in URLs.
    """
    return mask_secrets(_program_secrets(upstream) if isinstance(upstream, Program) else _remote_secrets(upstream))


def mask_secrets(secrets: Iterable[str]) -> Callable[[str], str]:
    """Return a function that masks these secrets, and parts of them, in a text."""
    long_enough = {part for secret in secrets for part in _parts(secret) if len(part) >= _SHORTEST}
    if not long_enough:
        return str
    pattern = re.compile("|".join(map(re.escape, sorted(long_enough, key=len, reverse=True))))
    return lambda text: pattern.sub(MASKED, text)


def _program_secrets(program: Program) -> Iterator[str]:
    for name, value in program.env.items():
        if is_secret_name(name):
            yield value
    previous = ""
    for arg in program.args:
        option = _OPTION.fullmatch(arg)
        if option and is_secret_name(option[1]):
            yield option[2]
        elif previous.startswith("-") and "=" not in previous and is_secret_name(previous):
            yield arg
        previous = arg
    for text in (*program.env.values(), *program.args):
        yield from _IN_URL.findall(text)


def _remote_secrets(remote: Remote) -> Iterator[str]:
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
    """Yield the forms in which a secret may appear: whole, line by line, and without a scheme in front of it."""
    yield secret
    yield from (line.strip() for line in secret.splitlines())
    yield secret.split()[-1] if secret.split() else ""
