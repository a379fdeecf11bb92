# The image of workers: docker build -f deploy/images/worker.Dockerfile -t REGISTRY/emberpool/worker:1 .
# --build-arg PACKAGES="s3fs acme-codec" adds what your blob store, data converter or policies need.
FROM python:3.12-slim AS build
ARG PACKAGES=""
COPY . /src
# `dependencies` is uv, by which workers fetch the packages that jobs ask for.
RUN python -m venv /opt/emberpool && /opt/emberpool/bin/pip install --no-cache-dir "/src[dependencies]" ${PACKAGES}

FROM python:3.12-slim
COPY --from=build /opt/emberpool /opt/emberpool
# The root file system may be read-only: what is fetched lies in /tmp, as layers do.
ENV PATH=/opt/emberpool/bin:$PATH PYTHONSAFEPATH=1 PYTHONUNBUFFERED=1 HOME=/tmp
USER 10001:10001
ENTRYPOINT ["emberpool", "worker"]
