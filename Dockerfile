# Serves a mounted config over stdin and stdout, as an ordinary user:
#   docker run -i --rm -v "$PWD/dynamic-mcp.json:/config/dynamic-mcp.json:ro" dynamic-mcp
FROM python:3.13-slim AS build
WORKDIR /src
COPY pyproject.toml README.md LICENSE ./
COPY schemas schemas
COPY dynamic_mcp dynamic_mcp
RUN python -m venv /opt/dynamic-mcp && /opt/dynamic-mcp/bin/pip install --no-cache-dir .

FROM python:3.13-slim
RUN useradd --create-home --uid 1000 mcp
COPY --from=build /opt/dynamic-mcp /opt/dynamic-mcp
ENV PATH=/opt/dynamic-mcp/bin:$PATH DYNAMIC_MCP_CONFIG=/config/dynamic-mcp.json
USER mcp
WORKDIR /home/mcp
ENTRYPOINT ["dynamic-mcp"]
