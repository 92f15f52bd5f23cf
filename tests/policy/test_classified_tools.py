"""The classifier on the tools of real servers, of which it is known what they do.

`classified_tools.json` has their names and arguments, and the words of their descriptions that are in our own
vocabulary. The truth is the server's annotations or, where `by` is `hand`, a person's reading of the documentation.
"""

from __future__ import annotations

import zlib
from functools import cache
from pathlib import Path

import msgspec
import pytest
from msgspec import Raw, Struct, field

from dynamic_mcp.policy.classify import classify


class KnownTool(Struct):
    """A tool, and what it does: `read` or `write`. `words` has `read-only` where the description says so."""

    name: str
    truth: str
    by: str = "annotations"
    lead: str = ""
    added: list[str] = field(default_factory=list)
    words: list[str] = field(default_factory=list)
    arguments: list[str] = field(default_factory=list)
    choices: dict[str, list[str]] = field(default_factory=dict)

    @property
    def definition(self) -> Raw:
        """The tool as a server would send it, with a description of the words that are known of it."""
        text = [self.lead or "this one has nothing else that may come first"]
        text += [f"and {word}" for word in self.added] + [f"it {word}" for word in self.words if word != "read-only"]
        says_read_only = ". read-only" if "read-only" in self.words else ""
        properties = {name: {"enum": self.choices[name]} if name in self.choices else {} for name in self.arguments}
        return Raw(
            msgspec.json.encode(
                {"description": " ".join(text) + says_read_only, "inputSchema": {"properties": properties}}
            )
        )


class KnownServer(Struct):
    """A server whose tools are known."""

    server: str
    version: str
    tools: list[KnownTool]


@cache
def known_servers() -> list[KnownServer]:
    text = Path(__file__).with_name("classified_tools.json").read_bytes()
    return msgspec.json.decode(text, type=list[KnownServer])


def is_held_out(server: str, tool: str) -> bool:
    """Tell whether a tool is of the half that the classifier was not tuned on."""
    return zlib.crc32(f"{server} {tool}".encode()) % 2 == 1


def judged(*, held_out: bool) -> list[tuple[str, str]]:
    """Return what each tool does, and what the classifier says."""
    return [
        (tool.truth, classify(tool.name, tool.definition).access)
        for known in known_servers()
        for tool in known.tools
        if is_held_out(known.server, tool.name) is held_out
    ]


@pytest.mark.parametrize("held_out", [False, True])
def test_of_a_hundred_writers_98_are_found(held_out: bool) -> None:
    said = [access for truth, access in judged(held_out=held_out) if truth == "write"]
    assert len(said) > 400
    assert said.count("write") / len(said) >= 0.98


@pytest.mark.parametrize(("held_out", "share"), [(False, 0.90), (True, 0.82)])
def test_most_readers_are_found(held_out: bool, share: float) -> None:
    said = [access for truth, access in judged(held_out=held_out) if truth == "read"]
    assert len(said) > 400
    assert said.count("read") / len(said) >= share


@pytest.mark.parametrize(("held_out", "precision"), [(False, 0.91), (True, 0.84)])
def test_what_is_called_a_writer_usually_is_one(held_out: bool, precision: float) -> None:
    truths = [truth for truth, access in judged(held_out=held_out) if access == "write"]
    assert truths.count("write") / len(truths) >= precision
