"""A one-line description of a server for the model: from its source, a table of known servers, or its name."""

from __future__ import annotations

import re
from collections.abc import Mapping
from urllib.parse import urlsplit

from dynamic_mcp.importer.convert.identity import identify, package_of
from dynamic_mcp.system.text import one_line

LONGEST = 200

# Keyed by a word in the name of the package, image or host; the first match counts.
_WELL_KNOWN = {
    "server-filesystem": "Read, write, search and move files in the allowed directories",
    "server-github": "GitHub: repositories, issues, pull requests, code search",
    "github-mcp-server": "GitHub: repositories, issues, pull requests, actions, code search",
    "githubcopilot.com": "GitHub: repositories, issues, pull requests, actions, code search",
    "gitlab": "GitLab: projects, issues, merge requests, pipelines",
    "server-gitlab": "GitLab: projects, issues, merge requests, pipelines",
    "mcp-server-git": "Git: status, diff, log, commits and branches of a local repository",
    "server-memory": "Remember facts between conversations in a knowledge graph",
    "server-sequential-thinking": "Think a hard problem through in numbered, revisable steps",
    "server-everything": "Example server that has every feature of the protocol",
    "mcp-server-fetch": "Fetch a web page and read it as text",
    "server-fetch": "Fetch a web page and read it as text",
    "mcp-server-time": "The current time, and times in other time zones",
    "server-puppeteer": "Drive a browser: open pages, click, type, take screenshots",
    "playwright": "Drive a browser: open pages, click, type, read, take screenshots",
    "chrome-devtools-mcp": "Drive and debug Chrome: pages, network, console, performance traces",
    "browser-use": "Let an agent drive a browser",
    "browserbase": "Browsers in the cloud: open pages, click, extract data",
    "server-postgres": "Query a PostgreSQL database and read its schema",
    "postgres": "PostgreSQL: queries, schema, health",
    "mcp-server-sqlite": "Query and change a SQLite database",
    "sqlite": "Query a SQLite database",
    "mysql": "Query a MySQL database and read its schema",
    "mongodb": "MongoDB: collections, queries, aggregations, indexes",
    "redis": "Redis: read and write keys, hashes, lists and streams",
    "elasticsearch": "Search and inspect Elasticsearch indexes",
    "clickhouse": "Query ClickHouse databases and read their schema",
    "snowflake": "Query Snowflake and inspect its objects",
    "bigquery": "Query BigQuery and inspect its datasets",
    "neo4j": "Query a Neo4j graph and read its schema",
    "duckdb": "Query DuckDB and MotherDuck databases",
    "supabase": "Supabase: database, migrations, edge functions, logs",
    "neon": "Neon: serverless PostgreSQL projects, branches and queries",
    "prisma": "Prisma: databases, migrations and schema",
    "qdrant": "Store and find texts by meaning in Qdrant",
    "chroma": "Store and find texts by meaning in Chroma",
    "pinecone": "Pinecone: vector indexes, records and search",
    "context7": "Up-to-date documentation and code examples of libraries",
    "deepwiki": "Read and ask about the documentation of public GitHub repositories",
    "gitmcp": "Read and search the documentation and code of a GitHub project",
    "server-brave-search": "Search the web with Brave",
    "brave": "Search the web with Brave",
    "tavily": "Search the web and extract pages with Tavily",
    "exa": "Search the web, code and companies with Exa",
    "firecrawl": "Scrape, crawl and search web sites",
    "perplexity": "Search and research the web with Perplexity",
    "kagi": "Search the web and summarise with Kagi",
    "duckduckgo": "Search the web with DuckDuckGo",
    "apify": "Run ready-made web scrapers and crawlers",
    "server-slack": "Slack: channels, messages, threads, users",
    "slack": "Slack: channels, messages, threads, users",
    "discord": "Discord: servers, channels, messages",
    "telegram": "Telegram: chats and messages",
    "linear": "Linear: issues, projects, cycles, comments",
    "atlassian": "Jira and Confluence: issues, boards, pages, search",
    "jira": "Jira: issues, boards, sprints",
    "notion": "Notion: pages, databases, search, comments",
    "asana": "Asana: tasks, projects, comments",
    "clickup": "ClickUp: tasks, lists, documents",
    "todoist": "Todoist: tasks and projects",
    "trello": "Trello: boards, lists, cards",
    "monday": "monday.com: boards, items, updates",
    "hubspot": "HubSpot: contacts, companies, deals, tickets",
    "salesforce": "Salesforce: records, queries, metadata",
    "zendesk": "Zendesk: tickets, users, help centre",
    "intercom": "Intercom: conversations, contacts, articles",
    "airtable": "Airtable: bases, tables, records",
    "obsidian": "Read, search and edit an Obsidian vault",
    "server-gdrive": "Search and read files in Google Drive",
    "google-workspace": "Gmail, Calendar, Drive, Docs and Sheets",
    "gmail": "Gmail: read, search, send and label mail",
    "google-maps": "Google Maps: places, directions, distances",
    "server-everart": "Make images with EverArt",
    "figma": "Figma: designs, components, variables, code for a frame",
    "canva": "Canva: designs, templates, exports",
    "blender": "Make and change scenes in Blender",
    "unity": "Drive the Unity editor: scenes, assets, scripts",
    "stripe": "Stripe: customers, payments, invoices, documentation",
    "paypal": "PayPal: invoices, payments, disputes",
    "shopify": "Shopify: products, orders, development documentation",
    "sentry": "Sentry: errors, issues, traces, releases",
    "datadog": "Datadog: logs, metrics, monitors, incidents",
    "grafana": "Grafana: dashboards, data sources, alerts, incidents",
    "prometheus": "Query Prometheus metrics",
    "pagerduty": "PagerDuty: incidents, services, schedules",
    "honeycomb": "Honeycomb: queries, traces, boards",
    "cloudflare": "Cloudflare: workers, storage, DNS, documentation, logs",
    "vercel": "Vercel: projects, deployments, logs, documentation",
    "netlify": "Netlify: sites, deploys, functions",
    "heroku": "Heroku: apps, add-ons, logs",
    "railway": "Railway: projects, services, deployments",
    "awslabs": "AWS: services and documentation",
    "aws": "AWS: services and documentation",
    "azure": "Azure: resources, storage, databases, deployments",
    "gcloud": "Google Cloud: resources and logs",
    "terraform": "Terraform: providers, modules, runs, documentation",
    "pulumi": "Pulumi: stacks, resources, registry",
    "kubernetes": "Kubernetes: pods, deployments, logs, events",
    "docker": "Docker: containers, images, volumes, logs",
    "desktop-commander": "Run commands, search and edit files on this computer",
    "serena": "Find and edit code by its symbols",
    "repomix": "Pack a repository into one text",
    "semgrep": "Scan code for vulnerabilities with Semgrep",
    "sonarqube": "SonarQube: issues, quality gates, metrics",
    "snyk": "Find vulnerabilities in code and dependencies with Snyk",
    "jetbrains": "Drive a JetBrains IDE: files, run configurations, inspections",
    "microsoft.com": "Microsoft Learn: documentation and code examples",
    "huggingface": "Hugging Face: models, datasets, papers, spaces",
    "hf.co": "Hugging Face: models, datasets, papers, spaces",
    "zapier": "Run actions in thousands of apps through Zapier",
    "composio": "Run actions in hundreds of apps through Composio",
    "n8n": "n8n: workflows, nodes, executions",
    "youtube": "YouTube: videos, transcripts, search",
    "spotify": "Spotify: playback, search, playlists",
    "mcp-remote": "Tools of a remote server",
}
_WORDS = tuple(
    (re.compile(rf"(?<![a-z0-9]){re.escape(word)}(?![a-z0-9])"), text) for word, text in _WELL_KNOWN.items()
)


def describe(name: str, entry: Mapping[str, object]) -> str:
    """Generate a description; it is never empty."""
    what = _find_subject(entry)
    for word, text in _WORDS:
        if word.search(what.lower()):
            return text
    return f"Tools from {what}" if what else f"Tools of {name}"


def with_description(name: str, entry: Mapping[str, object], text: str = "") -> Mapping[str, object]:
    """Return the entry with a description: the existing one, else `text`, else a generated one."""
    written = entry.get("description")
    if isinstance(written, str) and written.strip():
        return entry
    rest = {key: value for key, value in entry.items() if key != "description"}
    return {"description": shorten(text) or describe(name, entry), **rest}


def shorten(text: str) -> str:
    """Return the text as one line, cut at a word if it is too long."""
    line = one_line(text, None)
    if len(line) <= LONGEST:
        return line
    return line[: LONGEST - 1].rsplit(" ", 1)[0] + "…"


def _find_subject(entry: Mapping[str, object]) -> str:
    """Return the package, image or host behind a server, else its program."""
    if package := package_of(entry):
        return package
    kind, *words = identify(entry, "").key
    if kind == "url":
        return _host_name(words[0])
    program = words[0] if words else ""
    if program in ("docker", "podman"):
        return _find_image(words[1:-1]) or program
    scripts = [word for word in words[1:-1] if re.search(r"\.(py|js|mjs|cjs|ts|jar|sh)$", word)]
    module = words[2] if words[1:2] == ["-m"] and len(words) > 3 else ""
    if program.startswith(("python", "node", "deno", "bun", "java", "bash", "sh")) and (module or scripts):
        return module or re.split(r"[/\\]", scripts[0])[-1]
    return program


def _find_image(words: list[str]) -> str:
    """Return the image of `docker run`: the first word that is neither an option nor an option's value."""
    rest = words[words.index("run") + 1 :] if "run" in words else []
    takes_value = ("-e", "--env", "-v", "--volume", "--mount", "-p", "--name", "--network", "--env-file", "-w", "-u")
    while rest:
        if not rest[0].startswith("-"):
            return re.sub(r"[:@][^/]*$", "", rest[0])
        rest = rest[2:] if rest[0] in takes_value else rest[1:]
    return ""


def _host_name(url: str) -> str:
    try:
        return urlsplit(url).hostname or ""
    except ValueError:
        return ""
