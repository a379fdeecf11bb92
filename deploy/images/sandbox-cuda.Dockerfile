# An image of sandboxes on a base of Debian's or Ubuntu's kind that has no Python, as NVIDIA's with CUDA: it is installed.
#   docker build -f deploy/images/sandbox-cuda.Dockerfile -t REGISTRY/emberpool/sandbox-cuda:1 .
# Another base by --build-arg BASE=..., more packages by --build-arg APT="python3 git". The rest is as in sandbox.Dockerfile.
ARG BASE=nvidia/cuda:12.6.3-runtime-ubuntu24.04
FROM ${BASE}
USER 0:0
ARG APT=python3
RUN apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -qq -y --no-install-recommends $APT \
    && rm -rf /var/lib/apt/lists/*
COPY pool/emberd /opt/emberpool/emberd
RUN ["python3", "-I", "-c", "import sys; assert sys.version_info >= (3, 8), sys.version"]
RUN ["python3", "-I", "-m", "compileall", "-q", "/opt/emberpool/emberd"]
ENTRYPOINT ["python3", "-I", "/opt/emberpool/emberd/main.py"]
