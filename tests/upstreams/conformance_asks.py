"""The tools of conformance.py that ask their client in the middle of a call, as servers did before 2026-07-28."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

import mcp.types as types
from mcp.server.context import ServerRequestContext
from mcp.shared.message import ServerMessageMetadata

if TYPE_CHECKING or __package__:
    from . import conformance_offers as offers
else:  # started by its path, as an upstream is
    import conformance_offers as offers

Json = Any  # a literal of the fixture, in the protocol's words
Context = ServerRequestContext[Any]
Ask = Callable[[Context, dict[str, Json]], Awaitable[list[Json]]]


# --- one question --------------------------------------------------------------------------------------


async def fill_in(context: Context, message: str, form: Json) -> str:
    """Ask the user to fill in a form."""
    said = await context.session.elicit_form(message, form, related_request_id=context.request_id)
    return f"action={said.action}, content={json.dumps(said.content)}"


async def ask_model(context: Context, prompt: str) -> str:
    """Ask the client's model."""
    words = types.SamplingMessage.model_validate({"role": "user", "content": offers.text(prompt)})
    said = await context.session.create_message([words], max_tokens=100, related_request_id=context.request_id)
    block = said.content
    return block.text if isinstance(block, types.TextContent) else str(block)


async def ask_for_roots(context: Context) -> str:
    """Ask for the client's roots."""
    for_this = ServerMessageMetadata(related_request_id=context.request_id)
    found = await context.session.send_request(types.ListRootsRequest(), types.ListRootsResult, metadata=for_this)
    return json.dumps([str(root.uri) for root in found.roots])


async def ask_for_context(context: Context) -> str:
    """Ask the user what a prompt is about."""
    return await fill_in(context, "What context should the prompt use?", offers.form_with("context"))


# --- tools ---------------------------------------------------------------------------------------------


async def sample(context: Context, arguments: dict[str, Json]) -> list[Json]:
    return [offers.text(f"LLM response: {await ask_model(context, arguments['prompt'])}")]


def eliciting(message: str, form: Json, label: str) -> Ask:
    """Return a tool that asks the user to fill in a form."""

    async def elicit(context: Context, arguments: dict[str, Json]) -> list[Json]:
        return [offers.text(f"{label}: {await fill_in(context, arguments.get('message', message), form)}")]

    return elicit


async def ask_for_capital(context: Context, _arguments: dict[str, Json]) -> list[Json]:
    return [offers.text(await ask_model(context, "What is the capital of France?"))]


async def show_roots(context: Context, _arguments: dict[str, Json]) -> list[Json]:
    return [offers.text(await ask_for_roots(context))]


async def stream_elicitation(context: Context, _arguments: dict[str, Json]) -> list[Json]:
    await context.session.report_progress(1, 2, "asking")
    return [offers.text(await fill_in(context, "What is your name?", offers.form_with("name")))]


async def ask_all_at_once(context: Context, _arguments: dict[str, Json]) -> list[Json]:
    """Ask in each way, without waiting for one answer before the next question."""
    answers = await asyncio.gather(
        fill_in(context, "What is your name?", offers.form_with("name")),
        ask_model(context, "Generate a greeting"),
        ask_for_roots(context),
    )
    return [offers.text(answer) for answer in answers]


async def ask_in_rounds(context: Context, _arguments: dict[str, Json]) -> list[Json]:
    """Ask two questions, the second once the first is answered."""
    name = await fill_in(context, "Step 1: What is your name?", offers.form_with("name"))
    color = await fill_in(context, "Step 2: What is your favorite color?", offers.form_with("color"))
    return [offers.text(name), offers.text(color)]


async def ask_what_is_possible(context: Context, _arguments: dict[str, Json]) -> list[Json]:
    """Ask in each way that the client has said it can answer, and in no other."""
    can = context.session.client_capabilities or types.ClientCapabilities()
    answers = []
    if can.elicitation is not None:
        answers.append(await fill_in(context, "What is your name?", offers.form_with("name")))
    if can.sampling is not None:
        answers.append(await ask_model(context, "Generate a greeting"))
    if can.roots is not None:
        answers.append(await ask_for_roots(context))
    return [offers.text(answer) for answer in answers]


_CONFIRM = eliciting("Please confirm", offers.form_with("ok", "boolean"), "state-ok")

TOOLS: dict[str, Ask] = {
    "test_sampling": sample,
    "test_elicitation": eliciting("", offers.RESPONSE_FORM, "User response"),
    "test_elicitation_sep1034_defaults": eliciting("Review the form", offers.DEFAULTS_FORM, "Elicitation completed"),
    "test_elicitation_sep1330_enums": eliciting("Select options", offers.ENUMS_FORM, "Elicitation completed"),
    "test_missing_capability": ask_for_capital,
    "test_streaming_elicitation": stream_elicitation,
    "test_input_required_result_elicitation": eliciting("What is your name?", offers.form_with("name"), "Hello"),
    "test_input_required_result_sampling": ask_for_capital,
    "test_input_required_result_list_roots": show_roots,
    "test_input_required_result_request_state": _CONFIRM,
    "test_input_required_result_tampered_state": _CONFIRM,
    "test_input_required_result_multiple_inputs": ask_all_at_once,
    "test_input_required_result_multi_round": ask_in_rounds,
    "test_input_required_result_capabilities": ask_what_is_possible,
}
