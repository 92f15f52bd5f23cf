"""The servers of the journeys of era_journey.py, of each era and transport, and the words that each understands."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack
from typing import NamedTuple

from tests.journeys.remote_server import free_port, listening
from tests.program import UPSTREAMS, Json
from tests.upstreams.conformance_modern import ModernHttp
from tests.upstreams.full import Options
from tests.upstreams.full_http import FullHttp

NEW_PROMPT = {"name": "new-@me", "description": "has come"}
WORDS: Json = {
    "legacy": {
        "echo": ["echo", {"text": "é"}],
        "content": ["plain", {}],
        "fail": ["fail", {}],
        "progress": ["progress", {"steps": 3}],
        "log": ["log", {"level": "error", "logger": "full"}],
        "elicit": ["elicit", {}],
        "sample": ["sample", {}],
        "roots": ["roots", {}],
        "update": ["update", {"uri": "full://text"}],
        "change": ["add", {"list": "prompts", "entry": NEW_PROMPT}],
        "wait": ["wait", {"key": "k"}],
        "cancelled": ["record", {}, "notifications/cancelled"],
        "resource": "full://text",
        "prompt": ["greet", {"city": "Köln"}],
        "complete": ["city", "K"],
    },
    "modern": {
        "echo": ["greet", {"name": "é"}],
        "content": ["test_multiple_content_types", {}],
        "fail": ["test_error_handling", {}],
        "progress": ["test_tool_with_progress", {}],
        "log": ["test_tool_with_logging", {}],
        "elicit": ["test_input_required_result_multi_round", {}],
        "sample": ["test_input_required_result_sampling", {}],
        "roots": ["test_input_required_result_multiple_inputs", {}],
        "update": ["test_update_resource", {"uri": "test://static-text"}],
        "change": ["test_add_prompt", {"name": "new-@me"}],
        "wait": ["test_wait", {"key": "@me"}],
        "cancelled": ["test_cancelled", {"key": "@me"}, "it was cancelled"],
        "resource": "test://static-text",
        "prompt": ["test_prompt_with_arguments", {"arg1": "Köln", "arg2": "b"}],
        "complete": ["arg1", "K"],
    },
    "dual": {
        "echo": ["echo", {"text": "é"}],
        "content": ["picture", {}],
        "fail": ["fail", {}],
        "progress": ["progress", {}],
        "log": ["log", {}],
        "elicit": ["greet", {}],
        "sample": ["sample", {}],
        "roots": ["roots", {}],
        "update": ["touch", {"uri": "sdk://note"}],
        "change": ["add_prompt", {"name": "new-@me"}],
        "wait": ["wait", {"key": "@me"}],
        "cancelled": ["cancelled", {"key": "@me"}, "it was cancelled"],
        "resource": "sdk://note",
        "prompt": ["ask", {"city": "Köln"}],
        "complete": ["city", "K"],
    },
}
ERAS = tuple(WORDS)


class Servers(NamedTuple):
    """The servers of all eras over one transport, by era: commands, or URLs."""

    transport: str
    targets: dict[str, Json]

    def config(self) -> Json:
        """Return the servers of a config, a group for each era."""
        return {
            era: {"type": "http", "url": target}
            if isinstance(target, str)
            else {"command": target[0], "args": target[1:]}
            for era, target in self.targets.items()
        }


@contextlib.asynccontextmanager
async def servers_over(transport: str, eras: Sequence[str] = ERAS) -> AsyncIterator[Servers]:
    """Run one server of each of these eras over HTTP, or name the commands."""
    python = sys.executable
    if transport == "stdio":
        programs = {"legacy": "full.py", "modern": "conformance_modern.py", "dual": "sdk_modern.py"}
        yield Servers(transport, {era: [python, str(UPSTREAMS / programs[era])] for era in eras})
        return
    async with AsyncExitStack() as stack:
        legacy = await stack.enter_async_context(FullHttp(Options(), older=False).listening())
        modern = await stack.enter_async_context(ModernHttp())
        urls = {"legacy": legacy, "modern": modern.url}
        if "dual" in eras:
            port = free_port()
            command = (python, str(UPSTREAMS / "sdk_modern.py"), str(port))
            await stack.enter_async_context(listening(*command, port=port))
            urls["dual"] = f"http://127.0.0.1:{port}/mcp"
        yield Servers(transport, {era: urls[era] for era in eras})


def words_for(era: str, me: str, *, group: str = "") -> Json:
    """Return how to say it to this server, itself or as a group behind `call_dynamic_tool`."""
    return _filled({**WORDS[era], "group": group}, me)


def _filled(words: Json, me: str) -> Json:
    match words:
        case dict():
            return {key: _filled(value, me) for key, value in words.items()}
        case list():
            return [_filled(each, me) for each in words]
        case str():
            return words.replace("@me", me)
    return words
