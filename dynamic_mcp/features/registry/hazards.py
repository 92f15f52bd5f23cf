"""Finds texts of a registry that could start another program than the package, or expose this machine to it.

Every runtime argument that is not known to be harmless gets a warning.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from ipaddress import ip_address

# Variables that make a program load foreign code, or connect to another host.
_HEEDED = re.compile(
    r"(LD|DYLD|PIP|PIPX|UV|BUN|PNPM|NPM_CONFIG|NUGET|DOTNET|CONTAINERS|XDG)_.*|GLIBC_TUNABLES"
    r"|NODE_(OPTIONS|PATH|EXTRA_CA_CERTS|TLS_REJECT_UNAUTHORIZED)|PYTHON(PATH|STARTUP|HOME|USERBASE|PLATLIBDIR)"
    r"|PATH|HOME|USERPROFILE|APPDATA|SHELL|COMSPEC|BASH_ENV|ENV|PERL5(LIB|OPT|DB)|RUBY(OPT|LIB)"
    r"|(JAVA_TOOL|JDK_JAVA|_JAVA)_OPTIONS|CLASSPATH"
    r"|GIT_(SSH.*|EXEC_PATH|CONFIG.*|ASKPASS|EXTERNAL_DIFF|PROXY_COMMAND|TEMPLATE_DIR|EDITOR|PAGER)"
    r"|DOCKER_(HOST|CONFIG|CONTEXT|CERT_PATH|TLS.*|CUSTOM_HEADERS|CONTENT_TRUST.*)|CONTAINER_(HOST|SSHKEY|CONNECTION)"
    r"|(HTTP|HTTPS|ALL|FTP)_PROXY|SSL_CERT_(FILE|DIR)|SSLKEYLOGFILE|(REQUESTS|CURL)_CA_BUNDLE|OPENSSL_.*",
    re.IGNORECASE,
)
# Flags that only change how a program reports or fetches, alone and with a value, by the kind of the package.
_SWITCHES: Mapping[str, str] = {
    "npm": "-y --yes -q --quiet -s --silent --no --no-install --prefer-offline --prefer-online",
    "pypi": "-q --quiet -v --verbose -n --no-cache --no-progress --isolated --offline --refresh",
    "nuget": "-y --yes",
    "oci": "-i --interactive -t --tty -it -ti --rm --init --read-only -q --quiet",
}
_SETTINGS: Mapping[str, str] = {
    "npm": "--loglevel",
    "pypi": "--color",
    "nuget": "--verbosity",
    "oci": "-e --env --name --pull --platform -l --label -w --workdir -m --memory --cpus --hostname --cap-drop",
}
_MOUNT = re.compile(r"-[A-Za-z]*v.*|--volume|--volumes-from|--mount")
_NUMBER = re.compile(r"0x[0-9a-f]*|[0-9]+", re.IGNORECASE)
_INNER = ("localhost", "local", "internal", "lan", "home.arpa")


def examine(kind: str, words: Sequence[str]) -> tuple[list[str], str | None]:
    """Return the unusual flags among the arguments of a runtime, and the word that it would use as the package.

    The word after an unknown flag may be its value.
    """
    settings, switches = _SETTINGS[kind].split(), (*_SWITCHES[kind].split(), "--")
    unusual: list[str] = []
    is_value = may_be_value = False
    for word in words:
        name, equals, _ = word.partition("=")
        if is_value or (may_be_value and not word.startswith("-")):
            is_value = may_be_value = False
        elif not word.startswith("-"):
            return unusual, word
        elif name in settings:
            is_value, may_be_value = not equals, False
        else:
            is_known = name in switches
            may_be_value = not is_known and not equals
            unusual += [] if is_known else [word]
    return unusual, None


def is_heeded(variable: str) -> bool:
    """Return whether a variable of this name changes the behaviour of programs."""
    return _HEEDED.fullmatch(variable) is not None


def warnings_about_runtime(kind: str, program: str, words: Sequence[str]) -> list[str]:
    """Return what the user should know about the arguments of a runtime."""
    unusual, _ = examine(kind, words)
    if kind != "oci":
        return [f"`{word}` may make `{program}` start something else than the package" for word in unusual]
    found = [f"`{word}` may open this machine to the container, or change what runs in it" for word in unusual]
    if any(_MOUNT.fullmatch(word.partition("=")[0]) for word in unusual):
        found.append("the container may get directories of this machine")
    return found


def warnings_about_variables(names: Sequence[str]) -> list[str]:
    """Return what the user should know about the variables of a server."""
    return [f"`{name}` changes which code runs, or where it connects" for name in names if is_heeded(name)]


def is_private_host(host: str) -> bool:
    """Return whether a host name means this machine or one in a private network."""
    try:
        return not ip_address(host).is_global
    except ValueError:
        *_, last = host.rstrip(".").split(".")
        # other ways to write an address, such as `127.1` and `0x7f000001`
        return bool(_NUMBER.fullmatch(last)) or f".{host.rstrip('.')}".endswith(tuple(f".{each}" for each in _INNER))
