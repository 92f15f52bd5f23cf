"""Substitutes variables: `${VAR}`, `${VAR:-default}`, `${VAR:?message}`, and `$${` for a literal `${`.

`${credential:NAME}` is the content of a file that the service manager provides; `${op:op://vault/item/field}` is a
secret that a program is asked for later, when the server starts (`secret_programs`). The values of variables are
never expanded again. Any other text with a `$` is kept unchanged, and no shell is involved. All missing variables are
reported with their paths.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path

from msgspec import Struct
from msgspec.structs import force_setattr

from dynamic_mcp.config import environment
from dynamic_mcp.config.flaws import FlawError
from dynamic_mcp.config.keys import Keys, format_path
from dynamic_mcp.config.types import check_url
from dynamic_mcp.system.file_reader import read_bytes
from dynamic_mcp.system.text import os_reason

_DEFAULT = r"(?:\$\{[^{}]*\}|[^}])*"
CREDENTIAL = "credential:"
_CREDENTIAL_NAME = rf"{CREDENTIAL}[A-Za-z0-9_][A-Za-z0-9_.-]*"
_REFERENCE = (
    rf"\$\$\{{|\$\{{(?P<name>{_CREDENTIAL_NAME}|[A-Za-z_][A-Za-z0-9_]*)(?::(?P<sign>[-?])(?P<rest>{_DEFAULT}))?\}}"
    r"|\$\{(?P<source>[a-z][a-z0-9_-]*):(?P<asked>[^-?{}\s\0][^{}\r\n\0]*)\}"
)
# In an expansion, it stands before and after the reference to a secret of a program.
_MARK = "\0"
# Set by systemd for `LoadCredential=`; else where Docker, Podman and Compose mount secrets.
_CREDENTIALS_VARIABLE, _SECRETS = "CREDENTIALS_DIRECTORY", "/run/secrets"
# systemd's own limit (systemd.exec(5), section CREDENTIALS).
_MOST_CREDENTIAL_BYTES = 1 << 20
_NUL = "contains a NUL character"


class Expansion(Struct, frozen=True):
    """A text with its variables substituted, the undefined names, and the failures of `${VAR:?message}`.

    `required` are the names in those failures, `empty` the names with an empty value. A NUL stands before and after
    each reference to a secret of a program.
    """

    text: str
    undefined: tuple[str, ...] = ()
    failures: tuple[str, ...] = ()
    required: tuple[str, ...] = ()
    empty: tuple[str, ...] = ()


def expand(
    text: str, environment: Mapping[str, str], *, is_source: Callable[[str], bool] = lambda name: False
) -> Expansion:
    """Substitute the variables of `text`; a reference to an undefined name is kept unchanged and reported.

    A default may contain references itself, one level deep: `${A:-${B}}`. `is_source` returns whether a name is that
    of a program that knows secrets.
    """
    if "${" not in text:
        return Expansion(text)
    expansions: list[Expansion] = []

    def fill(match: re.Match[str]) -> str:
        expansions.append(_expand_reference(match, environment, is_source))
        return expansions[-1].text

    # a reference ends with a brace, so the text after the last one needs no search
    end = text.rfind("}") + 1
    return Expansion(
        text=re.sub(_REFERENCE, fill, text[:end]) + text[end:].replace("$${", "${"),
        undefined=_unique(name for each in expansions for name in each.undefined),
        failures=_unique(failure for each in expansions for failure in each.failures),
        required=_unique(name for each in expansions for name in each.required),
        empty=_unique(name for each in expansions for name in each.empty),
    )


def references(text: str, environment: Mapping[str, str]) -> Iterator[str]:
    """Yield the variables that `text` refers to; one with a default only if it is set."""
    for match in re.finditer(_REFERENCE, text) if "${" in text else ():
        name, sign, rest = match["name"], match["sign"], match["rest"]
        if name and sign == "-" and not _find_value(name, environment):
            yield from references(rest, environment)
        elif name and not name.startswith(CREDENTIAL):
            yield name


def find_credentials(text: str, environment: Mapping[str, str]) -> list[Path]:
    """Return the files of the credentials that `text` refers to."""
    if f"${{{CREDENTIAL}" not in text:
        return []
    names = re.findall(rf"\$\{{({_CREDENTIAL_NAME})", text)
    return [_credential_file(name, environment) for name in dict.fromkeys(names)]


class Surroundings(Struct, frozen=True):
    """The variables and the platform of the program that is configured, and the directory of the config file.

    `variables` come from the files in `variables_file` and are only for substitution in the config.
    `working_directory` is for programs without `cwd`; None is the proxy's own.
    """

    environment: Mapping[str, str]
    platform: str
    directory: Path
    variables: Mapping[str, str] = {}
    working_directory: str | None = None

    def __post_init__(self) -> None:
        if self.platform == "win32":
            force_setattr(self, "environment", environment.WindowsVariables(self.environment))

    def all_variables(self) -> Mapping[str, str]:
        if not self.variables:
            return self.environment
        both = environment.merge([self.environment, self.variables], platform=self.platform)
        return environment.WindowsVariables(both) if self.platform == "win32" else both


class Substitution:
    """Substitutes variables in texts, and collects warnings, failures and names without a value.

    `secrets` are the programs that know secrets, by name, besides those that are always known. `lookups` are the
    texts that refer to such secrets, by the keys of their places: parts that are by turns literal and a reference.
    """

    def __init__(self, environment: Mapping[str, str], secrets: Iterable[str] = ()) -> None:
        self._environment = environment
        self._secrets = frozenset(secrets)
        self.lookups: dict[Keys, tuple[str, ...]] = {}
        self.warnings: list[str] = []
        self.failures: list[str] = []
        self.unset: dict[str, None] = {}
        self.empty: dict[str, None] = {}

    def warn(self, at: Keys, message: str) -> None:
        """Record a warning about the text at these keys."""
        self.warnings.append(f"{format_path(at)}: {message}")

    def fail(self, at: Keys, message: str) -> None:
        """Record a failure: the reason why the text at these keys cannot be used."""
        self.failures.append(f"{format_path(at)}: {message}")

    def fill(self, at: Keys, text: str, *, is_required: bool = False, may_look_up: bool = False) -> str:
        """Return a text with its variables substituted. An unset one is kept, and is a failure if `is_required`.

        So is a reference to a secret of a program: with `may_look_up` it is among the `lookups`, else a failure.
        """
        if "\0" in text:
            self.fail(at, _NUL)
            return text
        expansion = expand(text, self._environment, is_source=self._is_source)
        self.unset.update(dict.fromkeys((*expansion.undefined, *expansion.required)))
        self.empty.update(dict.fromkeys(expansion.empty))
        for name in expansion.undefined:
            why = _describe_unset(name, self._environment)
            if is_required:
                self.fail(at, why)
            else:
                self.warn(at, f"{why} and is left unchanged")
        for failure in expansion.failures:
            self.fail(at, failure)
        if _MARK not in expansion.text or _NUL in expansion.failures:
            return expansion.text
        parts = expansion.text.split(_MARK)
        if may_look_up:
            self.lookups[at] = tuple(parts)
        else:
            self.fail(at, f"`${{{parts[1]}}}` can only be in `env`, `args`, `headers` and `query` of a server")
        return "".join(f"${{{part}}}" if number % 2 else part for number, part in enumerate(parts))

    def fill_optional(self, at: Keys, text: str | None) -> str | None:
        return None if text is None else self.fill(at, text)

    def fill_header(self, at: Keys, text: str) -> str:
        """Return the value of a header with its variables substituted."""
        value = self.fill(at, text, may_look_up=True)
        if "\r" in value or "\n" in value:
            self.fail(at, "contains a line break")
        return value

    def fill_secret(self, at: Keys, text: str) -> str:
        """Return a secret for a header with its variables substituted, all of which must be set."""
        value = self.fill(at, text, is_required=True)
        if not value.isascii() or not value.isprintable():
            self.fail(at, "contains characters that a header cannot have")
        return value

    def fill_url(self, at: Keys, text: str) -> str:
        """Return a URL with its variables substituted, all of which must be set."""
        failure_count = len(self.failures)
        url = self.fill(at, text, is_required=True)
        if len(self.failures) == failure_count:
            try:
                check_url(url)
            except FlawError:  # its message would reveal the values of the variables
                self.fail(at, "is not a URL once its variables are substituted")
        return url

    def _is_source(self, name: str) -> bool:
        from dynamic_mcp.config import secret_programs  # with the first reference that may be one to a secret

        return secret_programs.is_source(name, self._secrets)


def resolve_path(text: str, surroundings: Surroundings) -> Path:
    """Return the path that a user wrote; `~` is their home, and relative paths start beside the config."""
    return environment.resolve_path(text, surroundings.environment, base=surroundings.directory)


def _expand_reference(
    reference: re.Match[str], environment: Mapping[str, str], is_source: Callable[[str], bool]
) -> Expansion:
    name, sign, rest = reference["name"], reference["sign"], reference["rest"]
    if (source := reference["source"]) is not None:
        if not is_source(source):
            return Expansion(reference[0])
        return Expansion(f"{_MARK}{source}:{reference['asked']}{_MARK}")
    if name is None:
        return Expansion("${")
    value = _find_value(name, environment)
    if value in (
        f"${{{name}}}",
        f"${name}",
        f"${{env:{name}}}",
    ):  # some tools set a variable that they lack to a reference to itself
        value = None
    if value is not None and "\0" in value:
        return Expansion(value, failures=(_NUL,))
    if value or (value is not None and sign is None):
        return Expansion(value, empty=() if value else (name,))
    if sign == "-":
        return expand(rest, environment, is_source=is_source)
    if sign == "?":
        return Expansion(
            reference[0],
            failures=(_describe_unset(name, environment) + (f": {rest}" if rest else ""),),
            required=(name,),
        )
    return Expansion(reference[0], undefined=(name,))


def _find_value(name: str, environment: Mapping[str, str]) -> str | None:
    if not name.startswith(CREDENTIAL):
        return environment.get(name)
    try:
        return _read_credential(_credential_file(name, environment))
    except (OSError, UnicodeDecodeError):
        return None


def _read_credential(file: Path) -> str:
    """Return a credential, without the line break at its end. Raises OSError and UnicodeDecodeError."""
    text = read_bytes(file, most=_MOST_CREDENTIAL_BYTES).decode()
    return text.removesuffix("\n").removesuffix("\r")


def _credential_file(name: str, environment: Mapping[str, str]) -> Path:
    return Path(environment.get(_CREDENTIALS_VARIABLE) or _SECRETS) / name.removeprefix(CREDENTIAL)


def _describe_unset(name: str, environment: Mapping[str, str]) -> str:
    """Return why a reference has no value."""
    if not name.startswith(CREDENTIAL):
        return f"`${{{name}}}` is not set"
    file = _credential_file(name, environment)
    try:
        _read_credential(file)
    except OSError as exc:
        return f"`${{{name}}}` cannot be read from `{file}`: {os_reason(exc)}"
    except UnicodeDecodeError:
        return f"`${{{name}}}` cannot be read from `{file}`: it is not UTF-8"
    return f"`${{{name}}}` is empty"


def _unique(texts: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(texts))
