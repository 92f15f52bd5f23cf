"""`doctor --deployment`: prints what is found about a service, and lends it the token of a client."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from dynamic_mcp.cli.created_tokens import tokens_of
from dynamic_mcp.cli.diagnosis import check_files, probe_features, show_findings
from dynamic_mcp.cli.direct_server import parse_headers
from dynamic_mcp.cli.invocation import Invocation
from dynamic_mcp.cli.runner import run
from dynamic_mcp.config.auth import BearerAuth
from dynamic_mcp.config.substitute import expand
from dynamic_mcp.doctor.findings import Finding, exit_code
from dynamic_mcp.errors import DynamicMcpError, InvalidArguments
from dynamic_mcp.features.table import FEATURES

if TYPE_CHECKING:
    from dynamic_mcp.config.resolved import Config

_SUBJECT = "doctor"
# Longer than all that is asked, and revoked before.
_LIFETIME_S = 120.0


def diagnose_deployment(context: Invocation, headers: Sequence[str]) -> int:
    """Print the findings; return the exit code of the first error."""
    file = context.config_path()
    config, findings = check_files(file)
    if config is not None:
        with _credential(config, _read_headers(headers)) as own, context.out.progress("looking at the service"):
            findings = [*findings, *run(_examine(config, own))]
    if context.out.is_json:
        context.out.print_json({"config": str(file), "findings": findings})
    else:
        show_findings(context.out, findings)
    return exit_code(findings)


def _read_headers(words: Sequence[str]) -> dict[str, str]:
    """Return the headers, with the variables in them: a command line is no place for a token."""
    expansions = {name: expand(value, os.environ) for name, value in parse_headers(words).items()}
    for name, each in expansions.items():
        if unset := (*each.undefined, *each.required):
            raise InvalidArguments(f"`${{{unset[0]}}}` in the header `{name}` is not set")
    return {name: each.text for name, each in expansions.items()}


async def _examine(config: Config, headers: Mapping[str, str]) -> list[Finding]:
    from dynamic_mcp.doctor.deployment import check_deployment
    from dynamic_mcp.doctor.public_url import check_public_url

    lacks_credential = bool(config.http and config.http.auth) and not _has_credential(headers)
    return [
        *await check_deployment(config, headers, lacks_credential=lacks_credential),
        *await check_public_url(config.http),
        *await probe_features(config),
        *await _examine_features(config),
    ]


async def _examine_features(config: Config) -> list[Finding]:
    """Return the findings about how features are run."""
    wanted = [feature for feature in FEATURES if feature.deployment and feature.is_wanted(config)]
    return [finding for each in wanted for finding in await each.load(each.deployment).examine(config)]


@contextlib.contextmanager
def _credential(config: Config, headers: Mapping[str, str]) -> Iterator[Mapping[str, str]]:
    """Add a token to the headers for a while, if the service accepts created ones and there is no other."""
    accepts = config.http is not None and any(isinstance(each, BearerAuth) for each in config.http.auth)
    if not accepts or config.http is None or config.http.public_url is None or _has_credential(headers):
        yield headers
        return
    tokens = tokens_of(config)
    try:
        token, stored = tokens.create(_SUBJECT, (), lifetime_s=_LIFETIME_S, now=time.time())
    except DynamicMcpError:  # the findings say that the state cannot be written
        yield headers
        return
    try:
        yield {**headers, "authorization": f"Bearer {token}"}
    finally:
        with contextlib.suppress(DynamicMcpError):
            tokens.revoke(stored.id)


def _has_credential(headers: Mapping[str, str]) -> bool:
    return any(name.lower() == "authorization" for name in headers)
