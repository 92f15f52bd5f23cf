"""The tool that runs scripts, as clients see it. What runs them is loaded with the first."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from msgspec import Raw

from dynamic_mcp.client import Client
from dynamic_mcp.config.resolved import Config
from dynamic_mcp.errors import DynamicMcpError, InvalidArguments
from dynamic_mcp.features.scripts.config import Scripts
from dynamic_mcp.mcp import wire
from dynamic_mcp.mcp.wire import Frame
from dynamic_mcp.proxy.known_clients import find_known
from dynamic_mcp.proxy.own_tools import OwnTool, OwnToolContext
from dynamic_mcp.proxy.request import Request
from dynamic_mcp.proxy.request_state import find_kept
from dynamic_mcp.proxy.view import View
from dynamic_mcp.tools.meta_tools import GET, own_arguments

if TYPE_CHECKING:  # loaded with the first script
    from dynamic_mcp.features.scripts.sandbox import Sandbox
    from dynamic_mcp.features.scripts.suspended import SuspendedScripts

NAME = "run_dynamic_script"


def make_tool(context: OwnToolContext) -> ScriptTool:
    """Return the tool that runs scripts."""
    return ScriptTool(context)


class ScriptTool(OwnTool):
    """Runs scripts for the clients that may."""

    def __init__(self, context: OwnToolContext) -> None:
        self._context = context
        self._settings, self._is_on = Scripts(), False
        self._definition = Raw()
        self._sandbox: Sandbox | None = None
        self._suspended: SuspendedScripts | None = None

    def apply(self, config: Config) -> None:
        """Run scripts as this config says from now on; scripts in progress go on as they began."""
        settings = config.settings_of("scripts", Scripts)
        self._settings, self._is_on = settings or Scripts(), settings is not None
        definition = _build_definition(self._settings)
        if definition != self._definition:
            self._definition = definition

    def describe(self, view: View) -> Raw | None:
        profile = view.scope.profile
        is_on = self._is_on if profile is None or profile.scripts is None else profile.scripts
        return self._definition if is_on else None

    @property
    def is_for_all(self) -> bool:
        return self._settings.clients == "all"

    def is_for(self, client: Client) -> bool:
        """Return whether a client is offered scripts: those that are known to run their own are not, by default."""
        if self.is_for_all:
            return True
        known = find_known(client.hello.name, client.hello.version)
        return known is None or not known.runs_scripts

    async def answer(self, request: Request, params: Mapping[str, Raw]) -> Frame:
        """Run a script, or go on with one. Raises InvalidArguments, DynamicMcpError and StateRefused."""
        if request.parent is not None:
            raise DynamicMcpError("a script cannot run scripts")
        arguments = own_arguments(params)
        code = wire.text(arguments.get("code"))
        if not code or not code.strip():
            raise InvalidArguments("`code` is missing", hint="it is the text of the script")
        return await self._run(request, params, code, self._find_suspended())

    async def run_stored(self, request: Request, params: Mapping[str, Raw], code: str) -> Frame:
        """Run a stored script for a call, whose arguments are its `input`. Raises InvalidArguments and StateRefused.

        It is not kept on disk: a retry would have to pass the rules on the call of a tool once more.
        """
        arguments = {"code": code, "input": params.get("arguments", wire.EMPTY_OBJECT)}
        return await self._run(request, {**params, "arguments": Raw(wire.encode(arguments))}, code, None)

    async def _run(
        self, request: Request, params: Mapping[str, Raw], code: str, suspended: SuspendedScripts | None
    ) -> Frame:
        if (size := len(code.encode("utf-8", "replace"))) > self._settings.source:
            most = self._settings.source
            raise InvalidArguments(
                f"the script has {size} bytes, and {most} are the most", hint="pass data as `input`"
            )
        from dynamic_mcp.features.scripts.run import ScriptRun

        run = ScriptRun(self._context, request, params, self._settings, suspended)
        if "requestState" not in params:
            return await run.answer(self._find_sandbox())
        name = find_kept(wire.text(params["requestState"]) or "")
        responses = wire.members(params.get("inputResponses", wire.EMPTY_OBJECT))
        return await run.resume(self._find_sandbox(), name, responses)

    async def close(self) -> None:
        """End the workers."""
        if self._sandbox is not None:
            await self._sandbox.close()
        if self._suspended is not None:
            self._suspended.close()

    def _find_suspended(self) -> SuspendedScripts | None:
        folder = self._context.state_folder
        if self._suspended is None and (folder is not None or self._context.find_shared_store() is not None):
            from dynamic_mcp.features.scripts.suspended import SuspendedScripts
            from dynamic_mcp.features.scripts.suspended_files import FOLDER, SuspendedFiles

            files = None if folder is None else SuspendedFiles(folder / FOLDER)
            self._suspended = SuspendedScripts(files, self._context.find_shared_store)
        return self._suspended

    def _find_sandbox(self) -> Sandbox:
        if self._sandbox is None:
            from dynamic_mcp.features.scripts.sandbox import Sandbox

            self._sandbox = Sandbox(self._context.clock)
        return self._sandbox


def _build_definition(settings: Scripts) -> Raw:
    text = (
        "Run Python that calls many tools in one turn; only its result is shown, not those of the calls. In it:\n"
        "- `await call(group, name, args)`: the tool's result, parsed if it is JSON, else a str; images and files are"
        " dicts with a `handle`, shown if they are part of the result. An error is raised as ToolError;"
        " `details(error)` has its code, message and data.\n"
        "- `await tools(group=None, query=None)`: the definitions of tools\n"
        "- `input`, `print`, `asyncio.gather` (import it), json, re, datetime, math; no files, network, `yield` or"
        " class inheritance\n"
        "The result is the last expression, or what `return` returns, as JSON."
        f" At most {settings.calls} calls, {settings.parallel} at once. Look up input schemas with {GET} first."
    )
    schema = {
        "type": "object",
        "properties": {"code": {"type": "string"}, "input": {"description": "Data for the script, as `input`"}},
        "required": ["code"],
    }
    return Raw(
        wire.encode(
            {
                "name": NAME,
                "description": text,
                "inputSchema": schema,
                "annotations": {"readOnlyHint": False, "destructiveHint": True},
                "_meta": {"anthropic/alwaysLoad": True},
            }
        )
    )
