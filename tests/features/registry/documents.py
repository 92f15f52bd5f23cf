"""Documents as the official registry has them, in the shapes of its published versions."""

from __future__ import annotations

from typing import Any

Json = Any  # whatever JSON a test writes down
SCHEMA = "https://static.modelcontextprotocol.io/schemas/2025-12-11/server.schema.json"


def server(name: str = "io.github.example/weather", version: str = "1.0.0", **members: Json) -> Json:
    """Return a document with these members."""
    return {"$schema": SCHEMA, "name": name, "version": version, "description": "A server for tests", **members}


def package(kind: str = "npm", identifier: str = "@example/weather", version: str = "1.0.0", **members: Json) -> Json:
    """Return a package that speaks over stdio."""
    return {
        "registryType": kind,
        "identifier": identifier,
        "version": version,
        "transport": {"type": "stdio"},
        **members,
    }


def remote(url: str = "https://weather.example.com/mcp", **members: Json) -> Json:
    """Return a remote server."""
    return {"type": "streamable-http", "url": url, **members}


def named(name: str, **members: Json) -> Json:
    return {"type": "named", "name": name, **members}


def positional(**members: Json) -> Json:
    return {"type": "positional", **members}


def filesystem(version: str) -> Json:
    return server(
        "io.github.modelcontextprotocol/server-filesystem",
        version,
        description="Files and directories that you allow",
        repository={
            "url": "https://github.com/modelcontextprotocol/servers",
            "source": "github",
            "subfolder": "src/filesystem",
        },
        packages=[
            package(
                "npm",
                "@modelcontextprotocol/server-filesystem",
                version,
                registryBaseUrl="https://registry.npmjs.org",
                runtimeHint="npx",
                packageArguments=[
                    positional(
                        valueHint="allowed_directory",
                        description="A directory that the server may use",
                        format="filepath",
                        isRequired=True,
                        isRepeated=True,
                    )
                ],
            )
        ],
    )


def time(version: str) -> Json:
    return server(
        "io.github.modelcontextprotocol/server-time",
        version,
        description="Time and time zones",
        packages=[
            package(
                "pypi",
                "mcp-server-time",
                version,
                registryBaseUrl="https://pypi.org",
                runtimeHint="uvx",
                packageArguments=[
                    named("--local-timezone", description="The time zone of the user", default="Europe/Oslo")
                ],
            )
        ],
    )


def git(version: str) -> Json:
    return server(
        "io.github.modelcontextprotocol/server-git",
        version,
        description="A git repository",
        packages=[
            package(
                "pypi",
                "mcp-server-git",
                version,
                registryBaseUrl="https://pypi.org",
                packageArguments=[
                    named("--repository", description="The repository", format="filepath", isRequired=True)
                ],
            )
        ],
    )


def github() -> Json:
    """A server with a remote, and an image that gets its token as a variable of the container."""
    token = {"description": "A personal access token", "isRequired": True, "isSecret": True, "format": "string"}
    return server(
        "io.github.github/github-mcp-server",
        "0.20.1",
        description="Repositories, issues and pull requests",
        remotes=[remote("https://api.githubcopilot.com/mcp/")],
        packages=[
            {
                "registryType": "oci",
                "identifier": "ghcr.io/github/github-mcp-server:0.20.1",
                "transport": {"type": "stdio"},
                "runtimeArguments": [
                    named(
                        "-e",
                        value="GITHUB_PERSONAL_ACCESS_TOKEN={token}",
                        isRequired=True,
                        variables={"token": token},
                    )
                ],
            }
        ],
    )
