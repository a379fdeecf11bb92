# The image of workers: docker build -f deploy/images/worker.Dockerfile -t REGISTRY/emberpool/worker:1 .
FROM python:3.12-slim AS build
COPY . /src
RUN python -m venv /opt/emberpool && /opt/emberpool/bin/pip install --no-cache-dir /src

FROM python:3.12-slim
COPY --from=build /opt/emberpool /opt/emberpool
ENV PATH=/opt/emberpool/bin:$PATH PYTHONSAFEPATH=1 PYTHONUNBUFFERED=1
USER 10001:10001
ENTRYPOINT ["emberpool", "worker"]
