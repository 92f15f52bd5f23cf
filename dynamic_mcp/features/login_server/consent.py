"""The page on which a user grants or denies a client access. It is shown every time.

A client chooses its own name, so the page also shows where the browser goes afterwards, and the verified facts about
the client (MCP, authorization, security considerations; RFC 9700, section 4.15).
"""

from __future__ import annotations

from html import escape
from urllib.parse import urlsplit

from dynamic_mcp.face.auth.pages import page, paragraphs
from dynamic_mcp.face.http.exchange import Response
from dynamic_mcp.face.http.responses import Headers
from dynamic_mcp.features.login_server.clients import OFFLINE
from dynamic_mcp.features.login_server.records import PendingConsent
from dynamic_mcp.features.login_server.redirects import describe_target

ALLOW, DENY = "allow", "deny"
_LOCAL = (
    "Any program on your computer could claim to be this client. Allow it only if you have just started a login"
    " in an application that you trust."
)
_UNVERIFIED = "The client chose this name itself. It was not verified."


def consent_page(
    pending: PendingConsent, action: str, secrets: dict[str, str], resources: list[str], headers: Headers
) -> Response:
    """Return the page with its form, which posts `secrets` and the decision to `action`."""
    request = pending.request
    client = request.client
    name = client.name or "An unnamed application"
    facts = [("Client", name)]
    if client.has_document:
        facts.append(("Published by", urlsplit(client.id).netloc))
    facts += [
        ("You are logged in as", pending.user.subject),
        ("It will use", ", ".join(resources)),
        ("Afterwards, your browser goes to", describe_target(request.redirect_uri)),
    ]
    if scopes := [each for each in request.scopes if each != OFFLINE]:
        facts.append(("With the scopes", " ".join(scopes)))
    listed = "".join(f"<dt>{escape(label)}</dt><dd>{escape(value)}</dd>" for label, value in facts)
    warnings = [_LOCAL] if client.is_local else []
    warnings += [] if client.has_document else [_UNVERIFIED]
    warned = f'<div class="warning">{paragraphs(warnings)}</div>' if warnings else ""
    hidden = "".join(
        f'<input type="hidden" name="{escape(key)}" value="{escape(value)}">' for key, value in secrets.items()
    )
    form = (
        f'<form method="post" action="{escape(action)}">{hidden}<p>'
        f'<button type="submit" name="decision" value="{ALLOW}">Allow</button>'
        f'<button type="submit" name="decision" value="{DENY}">Deny</button></p></form>'
    )
    intro = paragraphs([f"{name} wants to use the tools of this server on your behalf."])
    return page("Allow access?", f"{intro}<dl>{listed}</dl>{warned}{form}", 200, headers)
