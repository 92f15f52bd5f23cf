"""The tools of conformance_modern.py: what the suites of both eras call, and what the proxy's own tests call.

A tool that asks is called again with the answers, so each begins from its request alone.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING or __package__:
    from . import conformance_offers as offers
    from .modern_questions import NAME, ask, elicitation, read_answers, roots, sampling, words_of
    from .modern_request import Json, NeedsInput, Request
else:  # started by its path, as an upstream is
    import conformance_offers as offers
    from modern_questions import NAME, ask, elicitation, read_answers, roots, sampling, words_of
    from modern_request import Json, NeedsInput, Request

BETWEEN_MESSAGES_S = 0.05  # the suite asks for pauses, so that messages arrive one by one


class Host(Protocol):
    """The server, as its tools change it. `cancelled` has the keys of the waits that were cancelled."""

    cancelled: set[str]

    def toggle(self, kind: str) -> None:
        """Add an entry to a list, or take it away again."""
        ...

    def add_prompt(self, name: str) -> None:
        """Add an entry to the list of prompts for good."""
        ...

    def update(self, uri: str) -> None:
        """Tell who listens that a resource has changed."""
        ...


Tool = Callable[[Request, Host], Awaitable[Json]]


def said(words: str) -> Json:
    """Return the result of a tool that says this."""
    return {"content": [offers.text(words)]}


# --- messages while the tool runs ----------------------------------------------------------------------


async def log(request: Request, _host: Host) -> Json:
    for words in ("Tool execution started", "Tool processing data", "Tool execution completed"):
        request.log("info", words)
        await asyncio.sleep(BETWEEN_MESSAGES_S)
    return said("Tool with logging executed successfully")


async def report_progress(request: Request, _host: Host) -> Json:
    for done in (0, 50, 100):
        request.report_progress(done, 100, f"Completed step {done} of 100")
        await asyncio.sleep(BETWEEN_MESSAGES_S)
    return said(str(request.meta.get("progressToken", 0)))


async def fail(_request: Request, _host: Host) -> Json:
    return {**said("This tool intentionally returns an error for testing"), "isError": True}


async def wait_a_little(_request: Request, _host: Host) -> Json:
    await asyncio.sleep(2 * BETWEEN_MESSAGES_S)
    return said("Reconnection test completed successfully")


async def wait_to_be_cancelled(request: Request, host: Host) -> Json:
    request.report_progress(0, 1, "waiting")
    try:
        await asyncio.Event().wait()
    finally:
        host.cancelled.add(str(request.arguments.get("key")))
    raise AssertionError


async def tell_cancelled(request: Request, host: Host) -> Json:
    return said("it was cancelled" if request.arguments.get("key") in host.cancelled else "it waits")


async def repeat(request: Request, _host: Host) -> Json:
    return said(json.dumps(request.arguments, sort_keys=True))


async def greet(request: Request, _host: Host) -> Json:
    return said(f"Hello, {request.arguments['name']}!")


# --- questions -----------------------------------------------------------------------------------------


async def sample(request: Request, _host: Host) -> Json:
    answers = ask(request, {"prompt": sampling(request.arguments["prompt"])})
    return said(f"LLM response: {words_of(answers['prompt'])}")


def eliciting(message: str, form: Json, label: str) -> Tool:
    """Return a tool that asks the user to fill in a form."""

    async def elicit(request: Request, _host: Host) -> Json:
        question = elicitation(request.arguments.get("message", message), form)
        answer = ask(request, {"form": question})["form"]
        return said(f"{label}: action={answer['action']}, content={json.dumps(answer.get('content'))}")

    return elicit


def asking(questions: dict[str, Json], words: str, *, keeps_state: bool = False) -> Tool:
    """Return a tool that asks some questions at once and repeats the answers."""

    async def ask_all(request: Request, _host: Host) -> Json:
        answers = ask(request, questions, keeps_state=keeps_state)
        return said(f"{words} {json.dumps(answers, sort_keys=True)}")

    return ask_all


async def stream_elicitation(request: Request, _host: Host) -> Json:
    request.open_stream()
    request.report_progress(1, 2, "asking")
    return said(json.dumps(ask(request, {"user_name": NAME})))


async def ask_in_rounds(request: Request, _host: Host) -> Json:
    """Ask two questions, the second once the first is answered."""
    request.require("elicitation")
    steps = {
        "step1": elicitation("Step 1: What is your name?", offers.form_with("name")),
        "step2": elicitation("Step 2: What is your favorite color?", offers.form_with("color")),
    }
    known: dict[str, Json] | None = request.unseal()
    answers = {} if known is None else {**known, **read_answers(request, steps)}
    for key, question in steps.items():
        if key not in answers:
            raise NeedsInput({key: question}, request.seal(answers))
    return said(json.dumps(answers, sort_keys=True))


async def ask_what_is_possible(request: Request, _host: Host) -> Json:
    """Ask in each way that the client can answer, and in no other."""
    questions = {"elicitation": NAME, "sampling": sampling("Generate a greeting"), "roots": roots()}
    possible = {name: question for name, question in questions.items() if name in request.capabilities}
    return said(json.dumps(ask(request, possible), sort_keys=True))


async def need_sampling(request: Request, _host: Host) -> Json:
    answers = ask(request, {"capital_question": sampling("What is the capital of France?")})
    return said(words_of(answers["capital_question"]))


# --- changes -------------------------------------------------------------------------------------------


async def change_tools(_request: Request, host: Host) -> Json:
    host.toggle("tools")
    return said("the tools have changed")


async def change_prompts(_request: Request, host: Host) -> Json:
    host.toggle("prompts")
    return said("the prompts have changed")


async def add_prompt(request: Request, host: Host) -> Json:
    host.add_prompt(request.arguments["name"])
    return said("there is one more prompt")


async def change_resources(_request: Request, host: Host) -> Json:
    host.toggle("resources")
    return said("the resources have changed")


async def update_resource(request: Request, host: Host) -> Json:
    host.update(request.arguments["uri"])
    return said("the resource has changed")


CONFIRM = {"confirm": elicitation("Please confirm", offers.form_with("ok", "boolean"))}
THREE = {"user_name": NAME, "greeting": sampling("Generate a greeting", 50), "client_roots": roots()}

TOOLS: dict[str, Tool] = {
    "test_tool_with_logging": log,
    "test_logging_tool": log,
    "test_tool_with_progress": report_progress,
    "test_error_handling": fail,
    "test_reconnection": wait_a_little,
    "test_wait": wait_to_be_cancelled,
    "test_cancelled": tell_cancelled,
    "test_sampling": sample,
    "test_elicitation": eliciting("", offers.RESPONSE_FORM, "User response"),
    "test_elicitation_sep1034_defaults": eliciting("Review the form", offers.DEFAULTS_FORM, "Elicitation completed"),
    "test_elicitation_sep1330_enums": eliciting("Select options", offers.ENUMS_FORM, "Elicitation completed"),
    "test_missing_capability": need_sampling,
    "test_streaming_elicitation": stream_elicitation,
    "test_trigger_tool_change": change_tools,
    "test_trigger_prompt_change": change_prompts,
    "test_trigger_resource_change": change_resources,
    "test_add_prompt": add_prompt,
    "test_update_resource": update_resource,
    "test_custom_headers": repeat,
    "test_nested_header": repeat,
    "greet": greet,
    "test_input_required_result_elicitation": asking({"user_name": NAME}, "Hello,"),
    "test_input_required_result_sampling": asking(
        {"capital_question": sampling("What is the capital of France?")}, "The model says"
    ),
    "test_input_required_result_list_roots": asking({"client_roots": roots()}, "The roots are"),
    "test_input_required_result_request_state": asking(CONFIRM, "state-ok", keeps_state=True),
    "test_input_required_result_tampered_state": asking(CONFIRM, "state-ok", keeps_state=True),
    "test_input_required_result_multiple_inputs": asking(THREE, "All answers:", keeps_state=True),
    "test_input_required_result_multi_round": ask_in_rounds,
    "test_input_required_result_capabilities": ask_what_is_possible,
}
