"""Paths in the config: the keys that lead to a value, and how to write them."""

import json
import re

Keys = tuple[str | int, ...]


def format_path(keys: Keys) -> str:
    """Format the keys as text: `mcpServers.github.args[0]`, `mcpServers["a b"].url`."""
    return "".join(map(_step, keys)).removeprefix(".")


def _step(key: str | int) -> str:
    is_plain = isinstance(key, str) and re.fullmatch(r"[\w$@/-]+", key)
    return f".{key}" if is_plain else f"[{json.dumps(key)}]"
