"""Every request and every answer is signed; what was seen on the wire cannot be used again."""

import asyncio
import hashlib
import hmac
import json
import secrets
from collections.abc import Iterator

import aiohttp
import pytest
from fixtures.emberd import POOL_KEY, EmberdProcess, Lease, Starter

from emberpool.pool.client.emberd_client import EmberdClient, pod_key
from emberpool.pool.client.signing import PodSigner
from emberpool.pool.model.errors import InvalidInput, PodRefused, PodUnreachable

Answer = tuple[int, dict[str, str], bytes]


@pytest.fixture
def tcp(emberds: Starter) -> Iterator[EmberdProcess]:
    """An emberd on TCP."""
    started = emberds.start("plain", listen="http://127.0.0.1:0")
    yield started
    started.stop()


async def raw(emberd: EmberdProcess, method: str, target: str, headers: dict[str, str], body: bytes = b"") -> Answer:
    """A request as it stands."""
    async with aiohttp.ClientSession() as session:
        async with session.request(method, emberd.address.endpoint + target, headers=headers, data=body) as response:
            return response.status, dict(response.headers), await response.read()


def signed(
    emberd: EmberdProcess, method: str, target: str, body: bytes = b"", key: bytes | None = None, **fields: str
) -> dict[str, str]:
    """Headers of a request under a claim."""
    signer = PodSigner(key or pod_key(POOL_KEY, emberd.address.name)).request()
    lease, tag, boot = (
        fields.get("lease", "l1"),
        fields.get("tag", "t" * 32),
        fields.get("boot", emberd.address.boot_id),
    )
    return signer.headers(method, target, body, lease, int(fields.get("epoch", "1")), tag, boot, "900")


async def test_tcp_and_unix_serve_alike(tcp: EmberdProcess, emberd_client: EmberdClient) -> None:
    """The same calls over http://host:port."""
    state = await emberd_client.state(tcp.address.name, tcp.address.endpoint)
    assert state.state == "clean" and state.room_mode == "plain"


async def test_without_the_key_nothing_is_answered(tcp: EmberdProcess) -> None:
    """401 without a signature, whatever is asked."""
    body = b'{"id": "x", "argv": ["true"]}'
    for headers in ({}, signed(tcp, "POST", "/v1/exec", body, key=b"x" * 32)):
        status, answered, said = await raw(tcp, "POST", "/v1/exec", headers, body)
        assert (status, json.loads(said)["error"]) == (401, "bad_signature")
        assert "x-ember-mac" not in answered


@pytest.mark.parametrize("change", ["method", "target", "lease", "epoch", "tag", "boot", "hold", "nonce", "body"])
async def test_every_part_is_signed(tcp: EmberdProcess, change: str) -> None:
    """A request that was changed anywhere on its way is refused."""
    method, target, body = "POST", "/v1/exec", b'{"id": "x", "argv": ["true"]}'
    headers = signed(tcp, method, target, body)
    if change == "method":
        method = "PUT"
    elif change == "target":
        target += "?x=1"
    elif change == "body":
        body = body.replace(b"true", b"nope")
    else:
        headers[f"x-ember-{change}"] = {"epoch": "2", "hold": "901"}.get(change, secrets.token_hex(16))
    status, _, said = await raw(tcp, method, target, headers, body)
    assert (status, json.loads(said)["error"]) == (401, "bad_signature")


async def test_a_request_cannot_be_replayed(tcp: EmberdProcess) -> None:
    """The second copy of a good request is refused, with a signed answer."""
    body = b'{"id": "x", "argv": ["true"], "wait_s": 5}'
    headers = signed(tcp, "POST", "/v1/exec", body)
    assert (await raw(tcp, "POST", "/v1/exec", headers, body))[0] == 200
    status, answered, said = await raw(tcp, "POST", "/v1/exec", headers, body)
    assert (status, json.loads(said)["error"]) == (401, "bad_signature")
    key = pod_key(POOL_KEY, tcp.address.name)
    text = "\n".join(["emberd1-answer", headers["x-ember-nonce"], "401", hashlib.sha256(said).hexdigest()])
    assert answered["x-ember-mac"] == hmac.new(key, text.encode(), hashlib.sha256).hexdigest()


async def test_another_boot_is_told_apart(tcp: EmberdProcess, emberd_client: EmberdClient) -> None:
    """Signed rightly, but for a start of emberd that is over."""
    address = tcp.address.model_copy(update={"boot_id": "0" * 32})
    with pytest.raises(PodRefused) as caught:
        await emberd_client.fence(address, 3)
    assert caught.value.word == "other_boot"


async def test_an_answer_without_the_key_is_no_answer(lease: Lease) -> None:
    """An impostor behind the address is PodUnreachable, not a result."""
    await lease.sh("true")

    async def impostor(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\nx-ember-mac: 00\r\n\r\n{}")
        await writer.drain()
        writer.close()

    async with await asyncio.start_server(impostor, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        with pytest.raises(PodUnreachable) as caught:
            await lease.client.state(lease.pod.name, f"http://127.0.0.1:{port}")
    assert "signature" in caught.value.detail


async def test_another_pools_key_is_unreachable(lease: Lease) -> None:
    """A worker of another trust domain gets nowhere."""
    await lease.sh("true")
    async with EmberdClient(b"other" * 8) as stranger:
        with pytest.raises(PodUnreachable):
            await stranger.state(lease.pod.name, lease.pod.endpoint)


@pytest.mark.parametrize(
    ("body", "field"),
    [
        (b"no json", "body"),
        (b"[]", "body"),
        (b'{"argv": ["true"]}', "id"),
        (b'{"id": "x"}', "argv"),
        (b'{"id": "x", "argv": []}', "argv"),
        (b'{"id": "x", "argv": ["a\\u0000b"]}', "argv"),
        (b'{"id": "x", "shell": "a\\u0000b"}', "shell"),
        (b'{"id": "x", "argv": ["a\\ud800"]}', "argv"),
        (b'{"id": "x", "argv": ["true"], "env": {"A=B": "1"}}', "env"),
        (b'{"id": "x", "argv": ["true"], "cwd": "a\\u0000"}', "cwd"),
        (b'{"id": "x", "argv": ["true"], "stdin": "!"}', "stdin"),
        (b'{"id": "x", "argv": ["true"], "time_limit_s": -1}', "time_limit_s"),
        (b'{"id": "x", "argv": ["true"], "time_limit_s": 0}', "time_limit_s"),
        (b'{"id": "x", "argv": ["true"], "time_limit_s": "abc"}', "time_limit_s"),
        (b'{"id": "x", "argv": ["true"], "output_limit": -1}', "output_limit"),
        (b'{"id": "x", "argv": ["true"], "wait_s": null}', "wait_s"),
    ],
)
async def test_misuse_names_the_field(tcp: EmberdProcess, body: bytes, field: str) -> None:
    """400 for what can never work (modelscope/evalscope#1688, aiming-lab/AutoResearchClaw#171)."""
    status, _, said = await raw(tcp, "POST", "/v1/exec", signed(tcp, "POST", "/v1/exec", body), body)
    assert (status, json.loads(said)["error"]) == (400, "bad_request")
    assert json.loads(said)["detail"].startswith(field)


async def test_a_body_over_the_limit_is_refused_unread(tcp: EmberdProcess) -> None:
    """413 from the announced length alone."""
    host, port = tcp.address.endpoint.removeprefix("http://").split(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    writer.write(b"PUT /v1/file?path=x HTTP/1.1\r\nhost: x\r\ncontent-length: 67108865\r\n\r\n")
    assert (await reader.readline()).split()[1] == b"413"
    writer.close()
    await writer.wait_closed()


async def test_an_unknown_call_is_misuse(lease: Lease) -> None:
    """A call that does not exist is no silent success."""
    with pytest.raises(InvalidInput):
        await lease.client._json(lease.pod, lease.proof, "/v1/nothing", {}, 5)  # pyright: ignore[reportPrivateUsage]
    await lease.sh("true")
