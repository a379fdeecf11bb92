# emberd and a Python of its own, for images that have neither, whatever their C library: a profile's `kubernetes.emberd_image`.
# Pods mount it read-only. From the top of the repository:
#   docker build -f deploy/images/emberd.Dockerfile -t REGISTRY/emberpool/emberd:1 .
FROM python:3.12-slim AS build
COPY deploy/images/portable_python.py /src/portable_python.py
COPY pool/emberd /src/emberd
RUN ["python3", "-I", "/src/portable_python.py", "/opt/emberpool", "/src/emberd"]

FROM scratch
COPY --from=build /opt/emberpool /
