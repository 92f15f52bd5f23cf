"""Forms on a terminal: what a person types becomes the content that the form wants."""

from __future__ import annotations

import contextlib
import io
from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from msgspec import Raw

from dynamic_mcp.cli.inbox import Inbox
from dynamic_mcp.cli.output import Output
from dynamic_mcp.cli.terminal_forms import TerminalForms
from dynamic_mcp.mcp import wire

Json = Any  # whatever JSON a test writes down


class InstantClock:
    """A clock on which every wait is over at once."""

    def now(self) -> float:
        return 0.0

    async def sleep(self, seconds: float) -> None:
        del seconds


class Person:
    """Types these lines, and then ends the input. `shown` is what the terminal has shown."""

    def __init__(self, *lines: str) -> None:
        self._lines = list(lines)
        self._stderr = io.StringIO()

    @property
    def shown(self) -> str:
        return self._stderr.getvalue()

    def read_line(self, within_s: float) -> str | None:
        del within_s
        if not self._lines:
            raise EOFError
        return self._lines.pop(0)

    async def answers(self, properties: Json = None, *, required: Sequence[str] = (), **params: Json) -> Json:
        out = Output(io.StringIO(), self._stderr, {}, as_json=False, is_quiet=False)
        forms = TerminalForms(out, read_line=self.read_line, discard_typed=lambda: None, clock=InstantClock())
        schema = {"type": "object", "properties": properties or {}, "required": list(required)}
        return await forms.ask(Raw(wire.encode({"message": "which?", "requestedSchema": schema, **params})))


@pytest.mark.parametrize(
    ("schema", "typed", "value"),
    [
        ({"type": "string"}, "Oslo", "Oslo"),
        ({"type": "integer"}, "7", 7),
        ({"type": "number"}, "1.5", 1.5),
        ({"type": "boolean"}, "no", False),
        ({"type": "string", "enum": ["red", "blue"]}, "2", "blue"),
        ({"type": "string", "enum": ["red", "blue"], "enumNames": ["Red", "Blue"]}, "red", "red"),
        ({"type": "string", "oneOf": [{"const": "r", "title": "Red"}, {"const": "b", "title": "Blue"}]}, "1", "r"),
        ({"type": "array", "items": {"type": "string", "enum": ["a", "b", "c"]}}, "1, 3", ["a", "c"]),
        ({"type": "string", "default": "Oslo"}, "", "Oslo"),
    ],
)
async def test_a_line_becomes_the_value_that_a_field_wants(schema: Json, typed: str, value: Json) -> None:
    assert await Person(typed).answers({"field": schema}) == {"action": "accept", "content": {"field": value}}


@pytest.mark.parametrize(
    ("schema", "unfit"),
    [
        ({"type": "integer"}, "seven"),
        ({"type": "integer", "minimum": 5}, "3"),
        ({"type": "boolean"}, "perhaps"),
        ({"type": "string", "enum": ["6", "8"]}, "9"),
        ({"type": "string", "minLength": 1}, ""),
    ],
)
async def test_what_does_not_fit_is_asked_again(schema: Json, unfit: str) -> None:
    person = Person(unfit, {"boolean": "yes", "integer": "7"}.get(schema["type"], "6"))
    answer = await person.answers({"field": schema}, required=["field"])
    assert answer["action"] == "accept"
    assert person.shown.count("your answer") == 2


async def test_a_field_that_is_not_required_may_be_left_out() -> None:
    answer = await Person("", "x").answers({"one": {"type": "string"}, "two": {"type": "string"}}, required=["two"])
    assert answer == {"action": "accept", "content": {"two": "x"}}


@pytest.mark.parametrize(("typed", "action"), [("y", "accept"), ("n", "decline")])
async def test_a_form_without_fields_is_accepted_or_declined(typed: str, action: str) -> None:
    assert (await Person(typed).answers())["action"] == action


async def test_no_progress_is_shown_while_a_question_waits_for_its_answer() -> None:
    stderr = io.StringIO()
    out = Output(io.StringIO(), stderr, {}, as_json=False, is_quiet=False)
    inbox = Inbox(out, lambda line: None, may_ask=True)
    progress = wire.parse(wire.notification_line("notifications/progress", b'{"progress": 1, "message": "waiting"}'))

    inbox.receive(progress)
    inbox.receive(wire.parse(wire.request_line(1, "elicitation/create", wire.EMPTY_OBJECT)))
    inbox.receive(progress)
    await inbox.close()
    assert stderr.getvalue().count("waiting") == 1


async def test_the_end_of_input_answers_nothing() -> None:
    assert await Person().answers({"field": {"type": "string"}}) == {"action": "cancel"}


async def test_the_choices_of_an_approval_have_the_keys_of_approve_watch() -> None:
    decision = {"type": "string", "enum": ["deny", "once", "hour", "session"]}
    assert (await Person("y").answers({"decision": decision}))["content"] == {"decision": "once"}
    assert (await Person("n").answers({"decision": decision}))["content"] == {"decision": "deny"}


async def test_what_others_have_written_stays_behind_the_bar() -> None:
    message = "first\nyour answer (y): \x1b[2Jsecond " + "x" * 500
    properties: Mapping[str, Json] = {"field": {"type": "string", "title": "name\nyour answer (y): "}}
    person = Person("a")
    await person.answers(properties, message=message)
    *foreign, prompt = person.shown.splitlines()
    assert all(line.startswith(("| ", "│ ")) for line in foreign)
    assert "\x1b" not in person.shown
    assert prompt == "your answer (text; Ctrl-D for none): "


@pytest.mark.parametrize(
    "params", [{"mode": "url", "url": "https://example.com"}, {"message": 1}, {"requestedSchema": {"properties": []}}]
)
async def test_what_is_no_form_is_malformed(params: Json) -> None:
    with pytest.raises(wire.Malformed):
        await Person().answers(**params)


@pytest.mark.parametrize("schema", [{"enum": [1]}, {"oneOf": "x"}, "text", {"type": 5}])
async def test_a_field_that_is_no_field_never_breaks_the_command(schema: Json) -> None:
    with contextlib.suppress(wire.Malformed):
        assert (await Person("a").answers({"field": schema}))["action"] in ("accept", "cancel")
