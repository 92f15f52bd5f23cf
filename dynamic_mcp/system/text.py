"""Words that every message needs."""


def pluralize(number: int, noun: str) -> str:
    """Return a number with its noun: `1 group`, `2 groups`. The noun is in the singular and takes an `s`."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
