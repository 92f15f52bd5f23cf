"""A program that knows secrets, such as a password manager, which answers as a test wants it."""

from __future__ import annotations

import sys
from pathlib import Path

from dynamic_mcp.config.resolved import Program
from dynamic_mcp.config.secret_programs import SecretLookup, SecretLookups, TextWithSecrets
from tests.fakes import Json

SECRET = "correct horse"

# Appends what it is asked to a file, and does what it is told in another one.
SCRIPT = """
import pathlib, sys, time
folder, asked = pathlib.Path(sys.argv[1]), sys.argv[2]
with (folder / "asked").open("a") as file:
    file.write(asked + "\\n")
exec((folder / "answer.py").read_text())
"""


class Vault:
    """A program that knows secrets, and what it has been asked."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        (folder / "vault.py").write_text(SCRIPT)
        (folder / "asked").touch()
        self.answers(f"print({SECRET!r})")

    @property
    def command(self) -> tuple[str, ...]:
        return (sys.executable, "-I", str(self._folder / "vault.py"), str(self._folder))

    def answers(self, code: str) -> None:
        """Let it run this with `asked` from now on."""
        (self._folder / "answer.py").write_text(code)

    @property
    def asked(self) -> list[str]:
        return (self._folder / "asked").read_text().splitlines()

    @property
    def settings(self) -> Json:
        return {"secrets": {"vault": {"command": [*self.command, "{}"]}}}

    def program(self, *references: str, **lookup: Json) -> Program:
        """Return a server whose variables refer to these secrets."""
        secrets = tuple(SecretLookup(f"vault:{each}", (*self.command, each), **lookup) for each in references)
        texts = tuple(TextWithSecrets("env", each, ("<", f"vault:{each}", ">")) for each in references)
        env = {each: f"<${{vault:{each}}}>" for each in references}
        return Program("x", ("a",), env, None, lookups=SecretLookups(secrets, texts, str(self._folder)))
