# The build stage holds pip and the sources, the image only the virtual environment that comes of them.
FROM python:3.13-slim AS build
ENV PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_CACHE_DIR=1
WORKDIR /src
RUN python -m venv /venv
# The lock comes first, so that a change of the sources does not install it again.
COPY requirements/ requirements/
RUN /venv/bin/pip install --require-hashes -r requirements/runtime.txt
COPY pyproject.toml README.md LICENSE ./
COPY router/ router/
COPY policies/ policies/
# The build backend stays out of the environment that is shipped.
RUN python -m venv /build \
    && /build/bin/pip install --require-hashes -r requirements/build.txt \
    && /build/bin/hatchling build -t wheel -d /dist \
    && /venv/bin/pip install --no-deps /dist/*.whl \
    && /venv/bin/pip uninstall --yes pip

FROM python:3.13-slim
LABEL org.opencontainers.image.title="needle-router" \
      org.opencontainers.image.licenses="Apache-2.0"
RUN useradd --uid 10001 --user-group --no-create-home --home-dir /cache --shell /usr/sbin/nologin needle \
    && install -d -o needle -g needle /cache
COPY --from=build /venv /venv
ENV PATH=/venv/bin:$PATH \
    PYTHONDONTWRITEBYTECODE=1 \
    HOME=/cache \
    HF_HOME=/cache/huggingface \
    XDG_STATE_HOME=/cache/state \
    NEEDLE_ROUTER_SERVER_HOST=0.0.0.0 \
    NEEDLE_TELEMETRY=0 \
    DO_NOT_TRACK=1
# By number, so that an orchestrator can see that it is not root.
USER 10001:10001
WORKDIR /cache
# Engine files and the ledger.
VOLUME /cache
EXPOSE 8088
# Reads the port from where the router does; no curl in the image.
HEALTHCHECK --interval=10s --timeout=3s --start-period=10s CMD ["python", "-c", "import os, urllib.request as u; u.urlopen('http://127.0.0.1:' + os.environ.get('NEEDLE_ROUTER_SERVER_PORT', '8088') + '/healthz', timeout=2)"]
# On every address of a container the router asks for a key: set NEEDLE_ROUTER_SERVER_API_KEYS (see docs/operations.md).
CMD ["needle-router", "serve"]
