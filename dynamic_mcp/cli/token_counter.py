"""Counts tokens: exactly if a tokenizer is installed, else as four characters a token."""

from __future__ import annotations

import importlib
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass

ESTIMATE = "estimated: 4 characters a token"
_ENCODING = "o200k_base"
# tiktoken fetches its vocabulary the first time; where that hangs, the estimate serves.
_LOADED_WITHIN_S = 10.0


@dataclass(frozen=True)
class Counter:
    """Counts the tokens of a text; `name` says how."""

    name: str
    tokens: Callable[[str], int]


def load_counter() -> Counter:
    """Return the best counter that is installed."""
    loaded: list[Callable[[str], Sequence[int]]] = []
    thread = threading.Thread(target=_load, args=(loaded,), daemon=True)
    thread.start()
    thread.join(_LOADED_WITHIN_S)
    if not loaded:
        return Counter(ESTIMATE, lambda text: -(-len(text) // 4))
    encode = loaded[0]
    return Counter(f"counted by tiktoken, {_ENCODING}", lambda text: len(encode(text)))


def _load(loaded: list[Callable[[str], Sequence[int]]]) -> None:
    try:
        encoding = importlib.import_module("tiktoken").get_encoding(_ENCODING)
    except Exception:  # noqa: BLE001 - whatever is wrong with it, the estimate remains
        return
    loaded.append(encoding.encode_ordinary)
