# An image of sandboxes: any with Python 3.8 or newer, and emberd beside it. Build it from the top of the repository:
#   docker build -f deploy/images/sandbox.Dockerfile --build-arg BASE=python:3.12-slim -t REGISTRY/emberpool/sandbox:1 .
# The base needs no shell. One without Python, as NVIDIA's with CUDA, takes sandbox-cuda.Dockerfile; images with a Python of
# their own, such as pytorch/pytorch's, go as they are. Which GPUs a pod has says its profile.
ARG BASE=python:3.12-slim
FROM ${BASE}
# The provider starts emberd itself, as root of the pod's own user namespace or of gVisor's kernel.
USER 0:0
COPY pool/emberd /opt/emberpool/emberd
# Fails here, rather than in every pod, for a base without a Python that will do; and spares each start the compiling.
RUN ["python3", "-I", "-c", "import sys; assert sys.version_info >= (3, 8), sys.version"]
RUN ["python3", "-I", "-m", "compileall", "-q", "/opt/emberpool/emberd"]
ENTRYPOINT ["python3", "-I", "/opt/emberpool/emberd/main.py"]
