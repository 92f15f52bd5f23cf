"""Words that every message needs."""


def pluralize(number: int, noun: str) -> str:
    """Return a number and its noun: `1 group`, `2 groups`. Pass the singular; the plural adds an `s`."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
