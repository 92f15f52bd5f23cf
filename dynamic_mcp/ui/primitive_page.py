"""The page of a tool, a resource, a template or a prompt: what it is, its form, and what came of using it."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

import msgspec
from msgspec import Raw, Struct

from dynamic_mcp.config.access import DEFAULT, Effect
from dynamic_mcp.errors import DynamicMcpError
from dynamic_mcp.face.http.exchange import Response
from dynamic_mcp.mcp import wire
from dynamic_mcp.policy.access import Judgement
from dynamic_mcp.proxy.client_group import ViewedGroup
from dynamic_mcp.ui.argument_form import FormError, parse_object
from dynamic_mcp.ui.byte_budget import ByteBudget
from dynamic_mcp.ui.content import Block, Download, build_blocks, read_download, read_pieces
from dynamic_mcp.ui.person_calls import PersonCall, PersonCalls
from dynamic_mcp.ui.primitives import Primitive, PrimitiveKind, find_primitive
from dynamic_mcp.ui.section import PageRedirect, PageView, Reply, Visit

# The space for what a server says: of the primitive, its form included, and of a result.
_TARGET_SPACE, _RESULT_SPACE = 20_000, 17_000
# A form waits for so long for its result, before the page says that the call still runs.
ANSWER_WITHIN_S = 1.5
_LONGEST_ERROR = 6000
_SLOW_BYTES = 100_000
_HINTS = (
    ("readOnlyHint", True, "only reads"),
    ("destructiveHint", True, "may destroy"),
    ("destructiveHint", False, "destroys nothing"),
    ("idempotentHint", True, "may be repeated"),
    ("openWorldHint", True, "reaches the outside world"),
    ("openWorldHint", False, "stays within the server"),
)
_TITLES: Mapping[PrimitiveKind, str] = {
    "tool": "Tool",
    "resource": "Resource",
    "template": "Template of resources",
    "prompt": "Prompt",
}
_BUTTONS: Mapping[PrimitiveKind, str] = {
    "tool": "Call it",
    "resource": "Read it",
    "template": "Read it",
    "prompt": "Get it",
}


class AskingRule(Struct, frozen=True):
    """A rule that asks a person, or refuses: always, or for some arguments only."""

    name: str
    effect: str
    is_conditional: bool


class ShownResult(Struct, frozen=True):
    """What came of a call, as the page shows it. `state` is `running`, `done`, `failed`, `stopped` or `gone`."""

    state: str
    id: str = ""
    began_at: float = 0.0
    took_ms: float | None = None
    size: int = 0
    error: str = ""
    hint: str = ""
    blocks: tuple[tuple[str, Block], ...] = ()
    command: str = ""
    may_wait: bool = False


class PrimitivePage:
    """The page of one primitive, for one visit. `link` is the path of its page."""

    def __init__(
        self,
        visit: Visit,
        group: ViewedGroup,
        kind: PrimitiveKind,
        name: str,
        calls: PersonCalls,
        *,
        splits_calls: bool,
    ) -> None:
        self._visit = visit
        self._group = group
        self._calls = calls
        self._splits_calls = splits_calls
        self._primitive = find_primitive(group, kind, name, ByteBudget(_TARGET_SPACE))

    @property
    def path(self) -> str:
        return f"tools/{self._primitive.path}"

    async def show(self) -> Reply:
        """Return the page, or a part of a result as a file."""
        query = self._visit.query
        id = query.get("result", "")
        call = self._calls.find(self._visit, id, self.path) if id else None
        if call is not None and "part" in query:
            return await asyncio.to_thread(_download, call, query["part"], self._primitive.name) or await self._view(
                call
            )
        if call is not None:
            return await self._view(call, call.typed)
        return await self._view(None, self._prefill(), is_gone=bool(id))

    async def act(self) -> Reply:
        """Call it, or show the form in another way. What was typed stays, whatever is wrong with it."""
        form = self._visit.form
        if form.get("do") == "stop":
            return await self._stop(form.get("result", ""))
        keys = {field.key for field in self._primitive.form.fields} | {"json", "mode"}
        typed = {key: value for key, value in form.items() if key in keys}
        if form.get("do") == "json":
            return await self._view(None, self._type(self._primitive.form.parse_draft(typed), "json"))
        try:
            arguments = self._read(typed)
        except FormError as exc:
            return await self._view(None, typed, error=exc)
        if form.get("do") == "form" and not self._primitive.form.can_show(wire.members(arguments)):
            wrong = FormError("json", "The form has no fields for all of this; it can be called as it is")
            return await self._view(None, typed, error=wrong)
        if form.get("do") == "form":
            return await self._view(None, self._type(arguments, "form"))
        return await self._call(arguments, typed)

    async def _call(self, arguments: Raw, typed: Mapping[str, str]) -> Reply:
        visit, primitive = self._visit, self._primitive
        method, params = primitive.make_request(arguments, splits_calls=self._splits_calls)
        try:
            call = self._calls.start(
                visit,
                visit.client.ask(method, params, group=primitive.group),
                path=self.path,
                arguments=arguments,
                typed=typed,
                may_wait=self._must_ask(arguments),
            )
        except DynamicMcpError as exc:
            return await self._view(None, typed, error=FormError("", str(exc)))
        await self._calls.wait(call, ANSWER_WITHIN_S)
        return PageRedirect(self._with_result(call.id))

    def _with_result(self, id: str) -> str:
        return f"{self.path}{'&' if '?' in self.path else '?'}result={id}"

    async def _stop(self, id: str) -> Reply:
        call = self._calls.find(self._visit, id, self.path)
        if call is not None:
            self._calls.stop(call)
            await self._calls.wait(call, ANSWER_WITHIN_S)
        return PageRedirect(self._with_result(id))

    # --- the form --------------------------------------------------------------------------------------

    def _read(self, typed: Mapping[str, str]) -> Raw:
        """Return the arguments that were typed. Raises FormError."""
        if typed.get("mode") == "json":
            return parse_object(typed.get("json", ""))
        return self._primitive.form.parse(typed)

    def _prefill(self) -> Mapping[str, str]:
        """Return what is in a form at first: what the URL says, if it says anything."""
        text = self._visit.query.get("args", "")
        if not text:
            return {"mode": "form" if self._primitive.form.fields or not self._primitive.form.is_open else "json"}
        try:
            return self._type(parse_object(text), "form")
        except FormError:
            return {"mode": "json", "json": text}

    def _type(self, arguments: Raw, mode: str) -> dict[str, str]:
        """Return what would have been typed for these arguments: in the form, if it has fields for them all."""
        members = wire.members(arguments)
        if mode == "form" and self._primitive.form.can_show(members):
            return {"mode": "form", **self._primitive.form.fill(members)}
        return {"mode": "json", "json": _indent(arguments).decode()}

    # --- the view --------------------------------------------------------------------------------------

    async def _view(
        self,
        call: PersonCall | None,
        typed: Mapping[str, str] = {},
        *,
        error: FormError | None = None,
        is_gone: bool = False,
    ) -> PageView:
        primitive = self._primitive
        shown = ShownResult("gone") if is_gone else None
        if call is not None:
            is_large = call.size > _SLOW_BYTES
            shown = await asyncio.to_thread(_show, call, primitive) if is_large else _show(call, primitive)
        values = {
            "primitive": primitive,
            "primitive_path": self.path,
            "kind_title": _TITLES[primitive.kind],
            "button": _BUTTONS[primitive.kind],
            "typed": typed,
            "mode": typed.get("mode", "form"),
            "error": error,
            "result": shown,
            "group_state": self._group.state.value,
            "is_from_disk": self._group.is_from_disk,
            "classification": self._group.classify(primitive.name) if primitive.kind == "tool" else None,
            "hints": _read_hints(primitive.entry) if primitive.kind == "tool" else (),
            "rules": self._list_rules(),
            "may_ask_about_arguments": primitive.kind == "tool" and self._group.may_ask_about_arguments,
            "mime_type": wire.text(wire.member(primitive.entry, "mimeType")) or "",
        }
        return PageView("primitive.html", primitive.title or primitive.name, values, 200 if error is None else 422)

    def _must_ask(self, arguments: Raw) -> bool:
        judgement = self._judge()
        return judgement is not None and judgement.decide(arguments).must_ask

    def _list_rules(self) -> list[AskingRule]:
        judgement = self._judge()
        return [] if judgement is None else _list_rules(judgement)

    def _judge(self) -> Judgement | None:
        return self._group.judge(self._primitive.name) if self._primitive.kind == "tool" else None


def _list_rules(judgement: Judgement) -> list[AskingRule]:
    """Return the rules by which a call may not simply go on, as far as they are known before it."""
    if judgement.settled is not None:
        decision = judgement.settled
        if decision.effect is Effect.ALLOW:
            return []
        name = "no rule allows it" if decision.rule == DEFAULT else decision.rule
        return [AskingRule(name, decision.effect.value, is_conditional=False)]
    rules = [
        AskingRule(rule.source.id, rule.source.effect.value, rule.needs_arguments)
        for rule in judgement.rules
        if rule.source.effect is not Effect.ALLOW
    ]
    if judgement.approve:
        rules.append(AskingRule(judgement.approve, Effect.ASK.value, is_conditional=False))
    return rules


def _read_hints(entry: Raw) -> list[str]:
    annotations = wire.value(wire.member(entry, "annotations"))
    said = annotations if isinstance(annotations, dict) else {}
    return [words for name, value, words in _HINTS if said.get(name) is value]


def _show(call: PersonCall, primitive: Primitive) -> ShownResult:
    """Return what a page shows of a call: as much as there is space for."""
    command = primitive.format_command(call.arguments)
    took_ms = None if call.took_s is None else call.took_s * 1000
    if call.is_running:
        return ShownResult("running", call.id, call.began_at, command=command, may_wait=call.may_wait)
    if call.result is None:
        state = "stopped" if call.is_stopped else "failed"
        error, hint = ("", "") if call.error is None else (call.error.message, call.error.hint)
        space = ByteBudget(_RESULT_SPACE)
        error, hint = space.take(error, _LONGEST_ERROR)[0], space.take(hint, _LONGEST_ERROR)[0]
        return ShownResult(state, call.id, call.began_at, took_ms, 0, error, hint, command=command)
    try:
        pieces = read_pieces(call.result)
        blocks, error = tuple(build_blocks(pieces, ByteBudget(_RESULT_SPACE))), ""
    except wire.Malformed as exc:
        blocks, error = (), f"the answer is malformed: {exc}; the download has it unchanged"
    state = "failed" if call.is_error else "done"
    return ShownResult(
        state, call.id, call.began_at, took_ms, call.size, error, blocks=blocks, command=command, may_wait=False
    )


def _download(call: PersonCall, part: str, name: str) -> Response | None:
    if call.result is None:
        return None
    try:
        pieces = [] if part == "all" else read_pieces(call.result)
    except wire.Malformed:
        return None
    if part == "all":
        return _send(Download(bytes(call.result), "application/json", "json"), name)
    if not part.isdecimal() or len(part) > 6 or int(part) >= len(pieces):
        return None
    return _send(read_download(pieces[int(part)]), f"{name}-{int(part) + 1}")


def _send(download: Download, name: str) -> Response:
    """Return a file that a browser saves, and never shows, whatever is in it."""
    plain = "".join(each if (each.isascii() and each.isalnum()) or each in "-_" else "_" for each in name[-60:])
    disposition = f'attachment; filename="{plain.strip("_") or "result"}.{download.suffix}"'
    headers = ((b"content-type", download.type.encode()), (b"content-disposition", disposition.encode()))
    return Response(200, headers, download.content)


def _indent(arguments: Raw) -> bytes:
    try:
        return msgspec.json.format(bytes(arguments), indent=2)
    except (msgspec.DecodeError, RecursionError):
        return bytes(arguments)
