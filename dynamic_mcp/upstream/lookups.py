"""Asks programs such as password managers for the secrets of a server, each time that the server starts.

What they answer is in the memory of this process and in what the server gets, and nowhere else.
"""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Mapping
from typing import cast

from msgspec.structs import replace

from dynamic_mcp.config.resolved import GroupConfig, Program, Remote
from dynamic_mcp.config.secret_programs import KEYRING, SecretLookup, SecretLookups, TextWithSecrets
from dynamic_mcp.config.secrets import mask_text
from dynamic_mcp.errors import DynamicMcpError, Unreachable
from dynamic_mcp.system.shell import quote
from dynamic_mcp.system.text import one_line, pluralize
from dynamic_mcp.upstream.cli.run import CommandResult, run
from dynamic_mcp.upstream.mask import mask_secrets
from dynamic_mcp.upstream.process.child import explain_failure, suggest_remedy

_WITHIN_S = 30.0
_MOST_BYTES = 64_000
_LONGEST_WORDS = 200


class _Failure(DynamicMcpError):
    """No secret was found. The message never has any of the output."""

    def __init__(self, message: str, *, hint: str = "") -> None:
        super().__init__(message)
        self.hint = hint


async def look_up(config: GroupConfig, upstream: Program | Remote) -> GroupConfig:
    """Return the config with the secrets that the programs have answered, which are asked at the same time.

    Raises Unreachable, which names the programs that failed.
    """
    lookups = upstream.lookups
    assert lookups is not None
    answers = await asyncio.gather(*(_try(each, lookups.directory) for each in lookups.secrets))
    failures = [each for each in answers if isinstance(each, _Failure)]
    if not failures:
        secrets = dict(zip((each.reference for each in lookups.secrets), cast("list[str]", answers), strict=True))
        failures = [failure for each in lookups.texts if (failure := _find_flaw(each, secrets)) is not None]
    if failures:
        raise Unreachable(config.name, "; ".join(each.message for each in failures), hint=failures[0].hint)
    return replace(config, upstream=_fill(upstream, lookups, secrets))


async def _try(lookup: SecretLookup, directory: str) -> str | _Failure:
    try:
        return await _ask(lookup, directory)
    except _Failure as exc:
        return exc


async def _ask(lookup: SecretLookup, directory: str) -> str:
    """Return a secret. Raises _Failure."""
    program = Program(command=lookup.command[0], args=lookup.command[1:], env=dict(os.environ), cwd=directory)
    try:
        result = await run(program, stdin=None, timeout_s=_WITHIN_S, output_limit=_MOST_BYTES)
    except (OSError, ValueError) as exc:
        failure = f"no answer for `${{{lookup.reference}}}`: {explain_failure(program, exc)}"
        raise _Failure(failure, hint=suggest_remedy(program, exc)) from exc
    why = _explain(lookup, result)
    if why:
        raise _Failure(f"no answer for `${{{lookup.reference}}}`: {why}", hint=_suggest(lookup))
    return _read(lookup, result.stdout.data)


def _explain(lookup: SecretLookup, result: CommandResult) -> str:
    """Return the reason for which the output of a program is no secret; empty if it may be one."""
    program = "the keychain" if _is_keychain(lookup) else f"`{os.path.basename(lookup.command[0])}`"  # noqa: PTH119
    if result.stopped:
        return f"{program}: {result.stopped}"
    if result.code:
        last_line = result.stderr.text().strip().rpartition("\n")[2]
        hide = mask_secrets(result.stdout.text().splitlines())
        words = one_line(mask_text(hide(last_line)), _LONGEST_WORDS)
        if _is_keychain(lookup):
            return words
        return f"{program} exited with code {result.code}" + (f": {words}" if words else "")
    if result.stdout.is_cut:
        return f"{program} printed more than {_MOST_BYTES} bytes"
    return ""


def _read(lookup: SecretLookup, output: bytes) -> str:
    """Return the secret in the output of a program. Raises _Failure."""
    try:
        text = output.decode()
    except UnicodeDecodeError:
        raise _bad_output(lookup, "something that is not UTF-8") from None
    text = text.removesuffix("\n").removesuffix("\r")
    if lookup.member:
        text = _read_member(lookup, text)
    elif lookup.output == "first_line":
        text = text.partition("\n")[0].removesuffix("\r")
    elif lookup.output == "line" and "\n" in text:
        lines = pluralize(text.count("\n") + 1, "line")
        raise _bad_output(lookup, f"{lines}; `output` in `settings.secrets` says which of them are the secret")
    if "\0" in text:
        raise _bad_output(lookup, "a NUL character")
    if not text.strip():
        raise _bad_output(lookup, "nothing")
    return text


def _read_member(lookup: SecretLookup, text: str) -> str:
    try:
        value = json.loads(text)[lookup.member]
    except (ValueError, KeyError, TypeError, RecursionError):
        raise _bad_output(lookup, f"no JSON with `{lookup.member}`") from None
    return str(value)


def _find_flaw(text: TextWithSecrets, secrets: Mapping[str, str]) -> _Failure | None:
    """Return why a header cannot have its secrets."""
    if text.place == "headers":
        for reference in text.parts[1::2]:
            if not secrets[reference].isprintable():
                return _Failure(f"a header cannot have what `${{{reference}}}` is: it contains a line break")
    return None


def _fill(upstream: Program | Remote, lookups: SecretLookups, secrets: Mapping[str, str]) -> Program | Remote:
    """Return the upstream with the secrets in its texts."""
    texts = {
        (each.place, each.key): "".join(secrets[part] if i % 2 else part for i, part in enumerate(each.parts))
        for each in lookups.texts
    }
    values = tuple(secrets.values())
    if isinstance(upstream, Remote):
        headers = {name: texts.get(("headers", name), value) for name, value in upstream.headers.items()}
        query = {name: texts.get(("query", name), value) for name, value in upstream.query.items()}
        return replace(upstream, headers=headers, query=query, looked_up=values)
    return replace(
        upstream,
        args=tuple(texts.get(("args", i), arg) for i, arg in enumerate(upstream.args)),
        env={name: texts.get(("env", name), value) for name, value in upstream.env.items()},
        looked_up=values,
    )


def _bad_output(lookup: SecretLookup, what: str) -> _Failure:
    return _Failure(
        f"no answer for `${{{lookup.reference}}}`: `{os.path.basename(lookup.command[0])}` printed {what}",  # noqa: PTH119
        hint=_suggest(lookup),
    )


def _suggest(lookup: SecretLookup) -> str:
    if _is_keychain(lookup):
        return f"`keyring set dynamic-mcp {quote(lookup.command[-1])}` stores it"
    return f"see what `{quote(*lookup.command)}` prints in a shell; it is asked again at the next try"


def _is_keychain(lookup: SecretLookup) -> bool:
    return lookup.reference.startswith(f"{KEYRING}:")
