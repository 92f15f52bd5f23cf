# Serves a mounted config over stdin and stdout, as an ordinary user:
#   docker run -i --rm -v "$PWD/config:/config:ro" dynamic-mcp
# The folder has dynamic-mcp.json; mount it, not the file, which editors replace when they save it.
FROM python:3.13-slim AS build
WORKDIR /src
COPY pyproject.toml README.md LICENSE ./
COPY schemas schemas
COPY dynamic_mcp dynamic_mcp
COPY deploy/chart deploy/chart
RUN python -m venv /opt/dynamic-mcp && /opt/dynamic-mcp/bin/pip install --no-cache-dir .

FROM python:3.13-slim
RUN useradd --create-home --uid 1000 mcp
COPY --from=build /opt/dynamic-mcp /opt/dynamic-mcp
ENV PATH=/opt/dynamic-mcp/bin:$PATH DYNAMIC_MCP_CONFIG=/config/dynamic-mcp.json
USER mcp
WORKDIR /home/mcp
# A new named volume takes the owner of the directory that it is mounted on.
RUN mkdir -p -m 700 .local/state/dynamic-mcp .cache/dynamic-mcp
ENTRYPOINT ["dynamic-mcp"]
