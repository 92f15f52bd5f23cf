"""A client of the program in either era, and the person in front of it, who agrees with everything."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any, Protocol
from urllib.parse import urljoin, urlsplit

from tests.http_client import HttpClient
from tests.program import Program

Json = Any  # whatever JSON the suite writes down
CAPABILITIES = {"elicitation": {"form": {"applyDefaults": True}, "url": {}}, "roots": {}, "sampling": {}}
MODERN = "2026-07-28"
# After so many questions about one request, something goes round in circles.
MAX_ROUNDS = 10
_ENVELOPE = {
    "io.modelcontextprotocol/protocolVersion": MODERN,
    "io.modelcontextprotocol/clientInfo": {"name": "test", "version": "1"},
    "io.modelcontextprotocol/clientCapabilities": CAPABILITIES,
}


class Peer(Protocol):
    """A client, as the drivers of the scenarios use it."""

    async def ask(self, method: str, params: Json = None) -> Json:
        """Send a request, answer the questions that it causes, and return the answer."""
        ...


class LegacyPeer:
    """A client that shakes hands, and is asked while its request waits."""

    def __init__(self, program: Program) -> None:
        self._program = program

    async def ask(self, method: str, params: Json = None) -> Json:
        """Send a request and return the answer."""
        return await self._program.request(method, params or {})

    async def answer_questions(self) -> None:
        """Answer every question of the program, until cancelled."""
        answered = 0
        while True:
            questions = self._program.heard("elicitation/create")[answered:]
            for question in questions:
                self._program.reply(question, await agree(question))
            answered += len(questions)
            await self._program.hears("elicitation/create", answered + 1)


class ModernPeer:
    """A client without a session, whose requests say who it is, and are sent again with the answers to questions."""

    def __init__(self, program: Program) -> None:
        self._program = program

    async def ask(self, method: str, params: Json = None) -> Json:
        """Send a request until it is complete, and return the answer."""
        answers: dict[str, Json] = {}
        for _ in range(MAX_ROUNDS):
            answer = await self._program.request(method, {**(params or {}), **answers, "_meta": _ENVELOPE})
            result = answer.get("result", {})
            if result.get("resultType") != "input_required":
                return answer
            questions = result.get("inputRequests", {})
            answers = {"inputResponses": {key: await agree(question) for key, question in questions.items()}}
            if "requestState" in result:
                answers["requestState"] = result["requestState"]
        raise AssertionError(f"`{method}` asks for more and more input")


@contextlib.asynccontextmanager
async def connected(program: Program, version: str) -> AsyncIterator[Peer]:
    """Use the program as a client of this revision does."""
    if version == MODERN:
        yield ModernPeer(program)
        return
    peer = LegacyPeer(program)
    await program.initialize(version, CAPABILITIES)
    person = asyncio.create_task(peer.answer_questions())
    try:
        yield peer
    finally:
        person.cancel()


async def agree(question: Json) -> Json:
    """Return the answer of a person who follows every link and accepts the defaults of every form."""
    params = question["params"]
    if params.get("mode") == "url":
        await visit(params["url"])
        return {"action": "accept"}
    fields = params["requestedSchema"]["properties"]
    content = {name: field["default"] for name, field in fields.items() if "default" in field}
    return {"action": "accept", "content": content}


async def visit(url: str) -> None:
    """Follow a link, and wherever it leads, as a browser does; loading a whole HTTP client takes longer than that."""
    for _ in range(MAX_ROUNDS):
        parts = urlsplit(url)
        async with HttpClient(url) as browser:
            answer = await browser.request("GET", f"{parts.path or '/'}?{parts.query}")
            await answer.read()
        if answer.status not in (301, 302, 303, 307, 308):
            return
        url = urljoin(url, answer.headers["location"])
    raise AssertionError(f"{url} goes round in circles")
