"""Checks of single values of `settings.audit`, `settings.telemetry` and `settings.approval`. Raises FlawError."""

from dynamic_mcp.config.values import FlawError, check_url


def check_command(words: list[str]) -> list[str]:
    """Check that a command names a program."""
    if not words or not words[0].strip():
        raise FlawError("must name a program", hint='write `["/path/to/program", "argument"]`')
    return words


def check_endpoint(text: str) -> str:
    """Check the URL of an OTLP/HTTP receiver."""
    check_url(text)
    if not text.startswith(("http://", "https://")):
        raise FlawError("must be an `http` or `https` URL")
    return text
