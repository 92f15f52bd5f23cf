"""The answers to a server's questions: from the command line, else from the user at the terminal.

A secret is never read from the command line, which other users of the machine could see.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import quote

from dynamic_mcp.cli import agreement
from dynamic_mcp.cli.invocation import Invocation
from dynamic_mcp.errors import InvalidArguments, NotFound
from dynamic_mcp.features.registry.document import is_reference
from dynamic_mcp.features.registry.options import Option, kind_of
from dynamic_mcp.features.registry.questions import ServerAnswers, ServerQuestion, ValuePlace, is_unanswered
from dynamic_mcp.importer.convert.vault import Vault, to_variable
from dynamic_mcp.system.file_reader import decode, read_bytes
from dynamic_mcp.system.text import one_line, os_reason

_SECRET_BYTES = 1 << 16


class Prompt:
    """Asks the user at the terminal. Raises KeyboardInterrupt on Ctrl-C."""

    def choose(self, options: Sequence[Option]) -> Option:
        import questionary

        choices = [
            questionary.Choice(f"{kind_of(each)} {one_line(each.label, 100)}", value=number)
            for number, each in enumerate(options)
        ]
        number: int = questionary.select("Which one?", choices=choices).unsafe_ask()
        return options[number]

    def ask(self, question: ServerQuestion) -> str:
        """Ask a question until the answer is valid."""
        import questionary

        default = question.input.valid_default or ""
        if is_reference(default):  # Enter would turn it into a variable of this machine
            default = ""
        if question.input.choices:
            choices = list(question.input.choices)
            return str(
                questionary.select(_ask(question), choices=choices, default=default or choices[0]).unsafe_ask()
            )
        field = questionary.text(_ask(question), default=default, validate=lambda text: _judge(question, text))
        return str(field.unsafe_ask())

    def ask_secret(self, question: ServerQuestion) -> str:
        """Ask a question without an echo; with an empty answer, the variable must be set later."""
        import questionary

        field = questionary.password(_ask(question), validate=lambda text: not text or _judge(question, text))
        return str(field.unsafe_ask())


@dataclass(frozen=True)
class CollectedAnswers:
    """ServerAnswers by key, and separately the secrets, which stay out of the config."""

    answers: dict[str, tuple[str, ...]] = field(default_factory=dict)
    secrets: dict[str, str] = field(default_factory=dict, repr=False)


def parse_answers(words: Iterable[str], about: Sequence[ServerQuestion]) -> CollectedAnswers:
    """Parse `--set KEY=VALUE`. Raises InvalidArguments and NotFound."""
    collected = CollectedAnswers()
    questions = {each.key: each for each in about}
    for word in words:
        key, equals, text = word.partition("=")
        if not equals or not key:
            raise InvalidArguments(f"--set: `{key}` is not KEY=VALUE")  # the rest may be a secret
        question = questions.get(key) or questions.get(key.lstrip("-"))
        if question is None:
            listed = ", ".join(f"`{each}`" for each in questions) or "none"
            raise NotFound("value of this server", key, list(questions), hint=f"its values are {listed}")
        if question.is_secret and not is_reference(text):
            collected.secrets[question.key] = _check(question, _read_secret(question.key, text))
            continue
        before = collected.answers.get(question.key, ())
        if before and not question.is_repeated:
            raise InvalidArguments(f"--set: `{question.key}` is given twice")
        collected.answers[question.key] = (*before, _check(question, _absolute(question, text)))
    return collected


def complete(
    collected: CollectedAnswers,
    questions: Sequence[ServerQuestion],
    prompt: Prompt | None,
    kept: Mapping[str, str],
) -> list[str]:
    """Ask for missing answers; use secrets among the `kept` variables, and return a note on those.

    Raises InvalidArguments.
    """
    missing: list[ServerQuestion] = []
    taken: list[str] = []
    for question in questions:
        if not question.is_required or question.key in collected.answers or question.key in collected.secrets:
            continue
        if question.is_secret and question.variable in kept:
            collected.answers[question.key] = (f"${{{question.variable}}}",)
            taken.append(f"`{question.variable}` has a value already, which this server gets")
        elif prompt is not None:
            _ask_user(collected, question, prompt)
        elif is_unanswered(question, collected.answers):
            missing.append(question)
    if missing:
        raise InvalidArguments(_format_missing(missing), hint=_format_hint(missing))
    return taken


def store_secrets(
    collected: CollectedAnswers, questions: Sequence[ServerQuestion], server: str, vault: Vault
) -> ServerAnswers:
    """Return all answers, with a variable for each secret, whose value the vault stores."""
    answers = dict(collected.answers)
    for question in questions:
        if question.key in collected.secrets:
            value = collected.secrets[question.key]
            value = quote(value, safe="") if question.place is ValuePlace.URL else value
            answers[question.key] = (f"${{{_keep(question, value, server, vault)}}}",)
    return answers


def find_prompt(context: Invocation, *, may_ask: bool) -> Prompt | None:
    """Return the prompt of a terminal, if there is one."""
    return Prompt() if may_ask and agreement.may_ask(context) else None


def format_question(question: ServerQuestion) -> str:
    """Return a question for a list: its key, its description, and its allowed values."""
    facts = [
        "required" if question.is_required else "",
        "secret" if question.is_secret else "",
        question.input.format if question.input.format != "string" else "",
        f"one of {', '.join(question.input.choices[:20])}" if question.input.choices else "",
        f"default {question.input.valid_default}" if question.input.valid_default else "",
        "may be repeated" if question.is_repeated else "",
    ]
    about = "; ".join(fact for fact in facts if fact)
    return f"{question.key}{f' ({about})' if about else ''}: {question.input.description or question.place.value}"


def _ask_user(collected: CollectedAnswers, question: ServerQuestion, prompt: Prompt) -> None:
    if not question.is_secret:
        collected.answers[question.key] = (_absolute(question, prompt.ask(question)),)
    elif value := prompt.ask_secret(question):
        collected.secrets[question.key] = value
    else:
        collected.answers[question.key] = (f"${{{question.variable or to_variable(question.key)}}}",)


def _keep(question: ServerQuestion, value: str, server: str, vault: Vault) -> str:
    name = question.variable or f"{server}_{question.key}"
    return vault.keep(server, name, value)


def _read_secret(key: str, text: str) -> str:
    """Return a secret from a file. Raises InvalidArguments for one on the command line."""
    if not text.startswith("@"):
        raise InvalidArguments(
            f"--set: `{key}` is a secret, which others could see on the command line",
            hint=f"`--set {key}=@FILE` reads it from a file, `--set {key}=@-` from stdin, and"
            f" `--set '{key}=${{VARIABLE}}'` refers to a variable; on a terminal, it is asked for",
        )
    try:
        if text == "@-":
            return sys.stdin.read(_SECRET_BYTES).rstrip("\r\n")
        return decode(read_bytes(Path(text[1:]), may_be_piped=True, most=_SECRET_BYTES)).rstrip("\r\n")
    except OSError as exc:
        raise InvalidArguments(f"--set: cannot read `{text[1:]}`: {os_reason(exc)}") from exc
    except UnicodeDecodeError as exc:
        raise InvalidArguments(f"--set: `{text[1:]}` is not UTF-8") from exc


def _check(question: ServerQuestion, text: str) -> str:
    if flaw := question.flaw_of(text):
        raise InvalidArguments(f"`{question.key}` {flaw}")
    return text


def _absolute(question: ServerQuestion, text: str) -> str:
    """Return an absolute path, which the server finds from any working directory."""
    if question.input.format != "filepath" or not text or is_reference(text) or question.flaw_of(text):
        return text
    return os.path.abspath(Path(text).expanduser())  # noqa: PTH100 - links stay


def _judge(question: ServerQuestion, text: str) -> bool | str:
    return question.flaw_of(text) or True


def _ask(question: ServerQuestion) -> str:
    about = one_line(question.input.description or question.place.value, 200)
    example = f" (such as {one_line(question.input.placeholder, 100)})" if question.input.placeholder else ""
    note = " (hidden; Enter to set it later)" if question.is_secret else ""
    return f"{one_line(question.key)} - {about}{example}{note}:"


def _format_missing(missing: Sequence[ServerQuestion]) -> str:
    return "\n".join(["values are missing:", *(f"  {format_question(each)}" for each in missing)])


def _format_hint(missing: Sequence[ServerQuestion]) -> str:
    first = missing[0]
    return f"--set {first.key}={'@FILE' if first.is_secret else 'VALUE'} gives one; on a terminal, they are asked for"
