"""Encrypt all that goes through Temporal: a codec for clients and workers, and a server that decodes for people.

EMBERPOOL_DATA_CONVERTER=encryption:converter has `emberpool` use it. CODEC_KEYS names a file of lines `NAME HEX`,
each a key of 32 bytes. The last one encrypts, all decrypt: to replace a key, add a line everywhere, and remove the
old one when no history needs it any more. `python encryption.py HOST:PORT ORIGIN` serves the decoding.
"""

import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from aiohttp import web
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from google.protobuf import json_format
from temporalio.api.common.v1 import Payload, Payloads
from temporalio.converter import DataConverter, DefaultFailureConverterWithEncodedAttributes, PayloadCodec

ENCODING = b"binary/encrypted"


class EncryptionCodec(PayloadCodec):
    """AES-GCM over the whole payload; which key is written beside it."""

    def __init__(self, keys: Mapping[str, bytes]) -> None:
        self._keys = {name.encode(): AESGCM(key) for name, key in keys.items()}
        self._current = list(self._keys)[-1]

    async def encode(self, payloads: Sequence[Payload]) -> list[Payload]:
        return [self._sealed(payload) for payload in payloads]

    async def decode(self, payloads: Sequence[Payload]) -> list[Payload]:
        """What is not encrypted is left as it is: it was started by hand, or before there was a codec."""
        return [self._opened(one) if one.metadata.get("encoding") == ENCODING else one for one in payloads]

    def _sealed(self, payload: Payload) -> Payload:
        nonce = os.urandom(12)
        data = nonce + self._keys[self._current].encrypt(nonce, payload.SerializeToString(), self._current)
        return Payload(metadata={"encoding": ENCODING, "key": self._current}, data=data)

    def _opened(self, payload: Payload) -> Payload:
        name = payload.metadata["key"]
        if name not in self._keys:
            raise ValueError(f"CODEC_KEYS has no key {name.decode()!r}")
        data = self._keys[name].decrypt(payload.data[:12], payload.data[12:], name)
        return Payload.FromString(data)


def codec() -> EncryptionCodec:
    """With the keys of the file."""
    lines = Path(os.environ["CODEC_KEYS"]).read_text().splitlines()
    return EncryptionCodec({name: bytes.fromhex(key) for name, key in (line.split() for line in lines)})


def converter() -> DataConverter:
    """Errors' messages and stack traces are encrypted too: they hold what commands printed."""
    return DataConverter(payload_codec=codec(), failure_converter_class=DefaultFailureConverterWithEncodedAttributes)


def codec_server(codec: PayloadCodec, origin: str) -> web.Application:
    """What Temporal's UI and command line ask to decode: it must itself decide who may, and be reached by TLS."""

    async def decode(request: web.Request) -> web.Response:
        given = json_format.Parse(await request.text(), Payloads())
        opened = Payloads(payloads=await codec.decode(list(given.payloads)))
        return web.json_response(text=json_format.MessageToJson(opened), headers=cors)

    async def preflight(_: web.Request) -> web.Response:
        return web.Response(headers=cors)

    cors = {"Access-Control-Allow-Origin": origin, "Access-Control-Allow-Headers": "content-type,x-namespace"}
    app = web.Application()
    app.router.add_post("/decode", decode)
    app.router.add_options("/decode", preflight)
    return app


if __name__ == "__main__":
    host, _, port = sys.argv[1].rpartition(":")
    web.run_app(codec_server(codec(), sys.argv[2]), host=host, port=int(port))
