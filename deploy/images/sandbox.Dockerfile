# An image of sandboxes: any with Python 3.8 or newer, and emberd beside it. Build it from the top of the repository:
#   docker build -f deploy/images/sandbox.Dockerfile --build-arg BASE=python:3.12-slim -t REGISTRY/emberpool/sandbox:1 .
ARG BASE=python:3.12-slim
FROM ${BASE}
COPY pool/emberd /opt/emberpool/emberd
# The provider starts emberd itself, as root of the pod's own user namespace or of gVisor's kernel.
ENTRYPOINT ["python3", "-I", "/opt/emberpool/emberd/main.py"]
