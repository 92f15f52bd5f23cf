"""Programs that know secrets, such as password managers, and the texts of a config that refer to their secrets.

`${op:op://vault/item/field}` is a reference: the name of a program and what it is asked. Reading the config asks
nothing; a program is asked each time that the server starts.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated, Literal, cast

from msgspec import Struct

from dynamic_mcp.config.flaws import FlawError
from dynamic_mcp.config.keys import Keys
from dynamic_mcp.config.section import Everyday, Section, Value

KEYRING = "keyring"
_WHOLE, _FIELD = "{}", "{#}"


def _check_command(words: Sequence[str]) -> tuple[str, ...]:
    """Check that one argument has the place of the reference, and that at most one has that of its field."""
    if not words or not words[0].strip() or "{" in words[0]:
        raise FlawError("must name a program", hint='write `["op", "read", "{}"]`')
    for place in (_WHOLE, _FIELD):
        count = sum(word.count(place) for word in words[1:])
        if count > 1 or (place == _WHOLE and not count):
            raise FlawError(f"must have one `{place}` in its arguments", hint="it stands for what is asked")
    return tuple(words)


class SecretProgram(Section, frozen=True, kw_only=True):
    """A program that prints a secret."""

    command: Annotated[
        Annotated[
            tuple[str, ...],
            Value(
                _check_command,
                written=list[str],
                schema={"minItems": 2},
                type_name="a list: the program, and its arguments",
            ),
        ],
        "The program and its arguments, started without a shell in the directory of the config. `{}` in one argument"
        " is what the reference asks for; `{#}` is the part after its last `#`, which `{}` is then without.",
        Everyday(),
    ]
    output: Annotated[
        Literal["line", "first_line", "text"],
        "What of its output is the secret: the only line, the first of several, or the whole text without its last"
        " line end. Default: line.",
    ] = "line"


PRESETS: Mapping[str, SecretProgram] = {
    # https://developer.1password.com/docs/cli/reference/commands/read
    "op": SecretProgram(command=("op", "read", "{}")),
    # https://developer.hashicorp.com/vault/docs/commands/kv/get
    "vault": SecretProgram(command=("vault", "kv", "get", "-field={#}", "{}")),
    # https://www.passwordstore.org: the first line is the password, by convention
    "pass": SecretProgram(command=("pass", "show", "{}"), output="first_line"),
    # https://getsops.io/docs: `#['github']['token']` is the path in the file
    "sops": SecretProgram(command=("sops", "-d", "--extract", "{#}", "{}")),
    # https://bitwarden.com/help/secrets-manager-cli: the id of a secret, as JSON
    "bws": SecretProgram(command=("bws", "secret", "get", "{}")),
    # https://cloud.google.com/sdk/gcloud/reference/secrets/versions/access
    "gcloud": SecretProgram(command=("gcloud", "secrets", "versions", "access", "latest", "--secret={}")),
    # https://docs.aws.amazon.com/cli/latest/reference/secretsmanager/get-secret-value.html
    "aws": SecretProgram(
        command=(
            *("aws", "secretsmanager", "get-secret-value", "--query", "SecretString", "--output", "text"),
            "--secret-id={}",
        )
    ),
    # macOS: `man security`
    "security": SecretProgram(command=("security", "find-generic-password", "-w", "-s", "{}")),
    # libsecret: `man secret-tool`
    "secret-tool": SecretProgram(command=("secret-tool", "lookup", "service", "{}")),
    KEYRING: SecretProgram(command=(sys.executable, "-P", "-m", "dynamic_mcp.oauth.keychain", "{}"), output="text"),
}
# Of this program's output, which is JSON, this member is the secret.
_JSON_MEMBERS = {PRESETS["bws"].command: "value"}


class SecretLookup(Struct, frozen=True):
    """A secret: the reference to it, the command that prints it, and what of its output is the secret.

    With `member`, the output is a JSON object, and the secret is that member of it.
    """

    reference: str
    command: tuple[str, ...]
    output: Literal["line", "first_line", "text"] = "line"
    member: str = ""


class TextWithSecrets(Struct, frozen=True):
    """A text with secrets: its place, and its parts, which are by turns literal and a reference."""

    place: Literal["env", "args", "headers", "query"]
    key: str | int
    parts: tuple[str, ...]


class SecretLookups(Struct, frozen=True):
    """The secrets that a server needs, each once, the texts that have them, and where their programs run."""

    secrets: tuple[SecretLookup, ...]
    texts: tuple[TextWithSecrets, ...]
    directory: str


def collect_lookups(
    texts: Mapping[Keys, tuple[str, ...]], programs: Mapping[str, SecretProgram], directory: str
) -> SecretLookups | None:
    """Return the secrets in the texts of a server, by the keys of their places; None if there are none."""
    if not texts:
        return None
    references = dict.fromkeys(reference for parts in texts.values() for reference in parts[1::2])
    placed = tuple(_place(at, parts) for at, parts in texts.items())
    return SecretLookups(tuple(make_lookup(each, programs) for each in references), placed, directory)


def make_lookup(reference: str, programs: Mapping[str, SecretProgram]) -> SecretLookup:
    """Return how to look up the secret of a reference such as `op:op://vault/item/field`. Raises FlawError."""
    name, _, asked = reference.partition(":")
    program = programs.get(name) or PRESETS[name]
    field = ""
    if any(_FIELD in word for word in program.command):
        asked, sign, field = asked.rpartition("#")
        if not (sign and asked and field):
            raise FlawError(f"`${{{reference}}}` lacks a field", hint=f"write `${{{name}:PATH#FIELD}}`")
    command = tuple(_fill(word, asked, field) for word in program.command[1:])
    return SecretLookup(
        reference, (program.command[0], *command), program.output, _JSON_MEMBERS.get(program.command, "")
    )


def is_source(name: str, programs: Iterable[str]) -> bool:
    """Return whether a name is that of a program that knows secrets."""
    return name in programs or name in PRESETS


def _fill(word: str, asked: str, field: str) -> str:
    # only one of both is replaced in what the other has brought
    return re.sub(r"\{#?\}", lambda found: field if found[0] == _FIELD else asked, word)


def _place(at: Keys, parts: tuple[str, ...]) -> TextWithSecrets:
    return TextWithSecrets(cast('Literal["env", "args", "headers", "query"]', at[-2]), at[-1], parts)
