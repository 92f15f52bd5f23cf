"""The result of a call: what the program wrote and how it ended, as text and as structured content."""

from __future__ import annotations

from dynamic_mcp.packs.model import Command
from dynamic_mcp.upstream.cli.run import Outcome


def make_result(command: Command, outcome: Outcome) -> dict[str, object]:
    """Return the result of a call that ran the program."""
    is_error = bool(outcome.stopped) or outcome.code not in (0, *command.ok_exit_codes)
    stdout, stderr = outcome.stdout.text(), outcome.stderr.text()
    structured = {
        "exitCode": outcome.code,
        "stdout": stdout,
        "stderr": stderr,
        "truncated": outcome.stdout.is_cut or outcome.stderr.is_cut,
    }
    text = _describe(outcome, stdout, stderr, is_error=is_error)
    return {"content": [_text(text)], "structuredContent": structured, "isError": is_error}


def refusal(why: str) -> dict[str, object]:
    """Return the result of a call that did not run the program."""
    return {"content": [_text(why)], "isError": True}


def _describe(outcome: Outcome, stdout: str, stderr: str, *, is_error: bool) -> str:
    """Return what a model reads: the output, what was said on stderr where that matters, and how it ended."""
    parts = [stdout.rstrip("\n")]
    if is_error or not stdout.strip():
        parts.append(stderr.rstrip("\n"))
    if outcome.stopped:
        parts.append(f"the program was ended: {outcome.stopped}")
    elif outcome.code:
        parts.append(f"exit code {outcome.code}")
    return "\n".join(filter(None, parts)) or "(no output)"


def _text(text: str) -> dict[str, str]:
    return {"type": "text", "text": text}
