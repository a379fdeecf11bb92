"""Layers of a pod: sent once per pod and content, in parts."""

import asyncio
import json
from typing import Any

from emberpool.pool.client.answers import LeaseProof
from emberpool.pool.client.emberd_client import TRANSFER_S, EmberdClient
from emberpool.pool.layers.store import Layer
from emberpool.pool.model.claim import PodAddress
from emberpool.pool.model.errors import InvalidInput, SandboxFileError

PART = 8 * 1024 * 1024
"""Bytes per request; emberd takes at most 64 MiB."""
UNPACK_S = 600.0
"""Seconds within which emberd has unpacked a layer."""


async def send_layer(client: EmberdClient, pod: PodAddress, proof: LeaseProof, layer: Layer, field: str) -> str:
    """See that the pod has the layer; where jobs find it.

    `field` is the input that the layer came from, for errors.

    Raises:
        InvalidInput: emberd refuses the archive: an entry would lie outside of it, or it is none.
        SandboxFileError: the pod has no space for it.
        PodUnreachable, PodRefused: as every call of the client.
    """
    target = f"/v1/layer/{layer.sha256}"

    async def ask(method: str, where: str, body: bytes = b"", timeout_s: float = TRANSFER_S) -> dict[str, Any]:
        answer = await client.call(pod, proof, method, where, body, timeout_s, path=layer.sha256)
        told: dict[str, Any] = json.loads(answer.body)
        return told

    told = await ask("GET", target)
    if told["state"] != "ready":
        with layer.path.open("rb") as file:
            file.seek(told["received"])
            offset = int(told["received"])
            while part := await asyncio.to_thread(file.read, PART):
                await ask("PUT", f"{target}?offset={offset}", part)
                offset += len(part)
        try:
            told = await ask("POST", target, timeout_s=UNPACK_S)
        except SandboxFileError as error:
            if error.reason == "bad_archive":
                raise InvalidInput(field, error.detail) from error
            raise
    path: str = told["path"]
    return path


async def place_layer(client: EmberdClient, pod: PodAddress, proof: LeaseProof, layer: Layer, path: str) -> None:
    """Copy a layer that the pod has into a folder of the sandbox, for the job to change.

    Raises:
        SandboxFileError: it cannot be written there.
    """
    body = json.dumps({"path": path}).encode()
    await client.call(pod, proof, "POST", f"/v1/layer/{layer.sha256}/place", body, TRANSFER_S, path=path)
