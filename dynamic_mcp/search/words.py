"""Splits text of any script into words: compound names into their parts, without accents, long words cut.

The same text always gives the same words, in the order of the text.
"""

from __future__ import annotations

import re
import threading
import unicodedata
from collections.abc import Callable, Iterator
from functools import lru_cache

MAX_WORD = 64

# Function words and politeness, which do not identify a tool.
_STOP_WORDS = """
a an the of to for in on at by with from into about over up as is are was were be been being am do does did doing
done have has had having i me my mine myself we us our ours you your yours he him his she her hers it its they them
their this that these those there here what which who whom whose when where why how and or but if then than so not
no nor can could will would shall should may might must please hello hi hey thanks thank want need like just some any
all also too very more most let lets help something anything everything someone thing things stuff
s t re ve ll d m don didn doesn isn aren
"""
STOP_WORDS = frozenset(_STOP_WORDS.split())

# Combining marks that belong to letters in the scripts of India and South East Asia.
_MARKS = "\u0900-\u0963\u0966-\u0dff\u0e30-\u0e4e\u0eb0-\u0ece\u102b-\u103e\u17b4-\u17d3\u3099\u309a"
_WORD = re.compile(rf"(?:[^\W_]|[{_MARKS}])+")
# Scripts without spaces between words, or with agglutinative words: bigrams of characters are precise enough.
_UNSPACED = re.compile(
    "([\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af"
    "\uf900-\ufaff\U00020000-\U0003ffff]+)"
)
_LOWER, _UPPER = "a-z\u03b1-\u03c9\u0430-\u044f", "A-Z\u0391-\u03a9\u0410-\u042f"  # with Greek and Cyrillic
_JOINT = re.compile(
    rf"(?<=[{_LOWER}0-9])(?=[{_UPPER}])|(?<=[{_UPPER}])(?=[{_UPPER}][{_LOWER}])"
    rf"|(?<=[{_LOWER}{_UPPER}])(?=[0-9])|(?<=[0-9])(?=[{_LOWER}{_UPPER}])"
)
_thread_local = threading.local()


def split_words(text: str) -> list[str]:
    """Return the words of a text in lower case; a compound word gives its parts and then itself."""
    return [
        word for run in _WORD.findall(text if text.isascii() else _strip_accents(text)) for word in _split_run(run)
    ]


def name_key(text: str) -> str:
    """Return the key that all spellings of a name share: `createIssue`, `create-issue`, `Create Issue`."""
    return "".join(_WORD.findall(_strip_accents(text))).casefold()


def split_name(name: str) -> list[str]:
    """Return the parts of a name, in their original case."""
    return [part for run in _WORD.findall(name) for part in _JOINT.split(run[:MAX_WORD])]


@lru_cache(maxsize=20_000)
def stem(word: str) -> str:
    """Return the English stem of a word; words in other scripts are unchanged."""
    return _stemmer()(word) if word.isascii() else word


def trigrams(word: str) -> list[str]:
    """Return the trigrams of a word, with its start and end marked."""
    marked = f" {word} "
    return [marked[at : at + 3] for at in range(len(marked) - 2)]


def _strip_accents(text: str) -> str:
    """Remove accents and vowel points, and normalise wide and compatibility characters."""
    decomposed = unicodedata.normalize("NFKD", text)
    return unicodedata.normalize("NFC", "".join(c for c in decomposed if not _is_accent(c)))


def _is_accent(character: str) -> bool:
    # the combining classes of accents, and of Hebrew and Arabic points, but not those of vowel signs
    combining_class = unicodedata.combining(character)
    return combining_class >= 200 or 10 <= combining_class <= 35


def _split_run(run: str) -> Iterator[str]:
    if run.isascii():
        yield from _split_compound(run)
        return
    for at, part in enumerate(_UNSPACED.split(run)):
        if at % 2 == 0:
            yield from _split_compound(part)
        elif len(part) == 1:
            yield part
        else:
            yield from (part[i : i + 2] for i in range(len(part) - 1))


def _split_compound(word: str) -> Iterator[str]:
    if not word:
        return
    parts = _JOINT.split(word[:MAX_WORD])
    yield from (part.casefold() for part in parts)
    if len(parts) > 1:
        yield word[:MAX_WORD].casefold()


def _stemmer() -> Callable[[str], str]:
    """Return the stemmer of this thread; threads must not share one."""
    if not hasattr(_thread_local, "stem"):
        from Stemmer import Stemmer  # imported with the first search only

        _thread_local.stem = Stemmer("english").stemWord
    stemmer: Callable[[str], str] = _thread_local.stem
    return stemmer
