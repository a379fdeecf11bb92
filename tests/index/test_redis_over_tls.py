"""`rediss://` with an authority of one's own and a client's certificate.

By a Redis 7.0 that is built with TLS where one can be had. The server that PyPI brings is built without, so its end of
it stands before the server, as people do with a proxy.
"""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio
from fixtures.main_path import main_path
from fixtures.older_redis import redis_7_0
from fixtures.servers import HOST, Server, free_port, in_memory
from fixtures.tls import Certificates, ended_tls, make_certificates

from emberpool.pool.index.connection import connect
from emberpool.pool.model.errors import PoolUnavailable


@pytest_asyncio.fixture(params=["proxy", "server"])
async def secure(tmp_path: Path, request: pytest.FixtureRequest) -> AsyncIterator[tuple[str, Certificates]]:
    """HOST:PORT that speaks TLS with clients it knows, and the certificates; of a proxy, or of the server itself."""
    certificates = make_certificates(tmp_path / "tls")
    if request.param == "server":
        program = redis_7_0()
        if program is None:
            pytest.skip("no server that is built with TLS can be had here")
        port, (pem, key) = free_port(), certificates.server
        own = (f"tls-port {port}", f"tls-cert-file {pem}", f"tls-key-file {key}", "tls-auth-clients yes")
        lines = (*in_memory(), *own, f"tls-ca-cert-file {certificates.authority}")
        async with Server(tmp_path / "redis", *lines, program=program):
            yield f"{HOST}:{port}", certificates
        return
    async with Server(tmp_path / "redis", *in_memory()) as server, ended_tls(server.port, certificates) as port:
        yield f"{HOST}:{port}", certificates


def files(certificates: Certificates) -> str:
    """The options that name a client's files."""
    pem, key = certificates.client
    return f"ssl_ca_certs={certificates.authority}&ssl_certfile={pem}&ssl_keyfile={key}"


async def test_a_server_over_tls(secure: tuple[str, Certificates]) -> None:
    """The main path, encrypted, the server's certificate and name checked, and ours shown."""
    address, certificates = secure
    async with await connect(f"rediss://{address}/0?{files(certificates)}") as redis:
        await main_path(redis)


async def test_an_unknown_authority_is_refused(secure: tuple[str, Certificates], tmp_path: Path) -> None:
    """A server that another authority vouches for is not spoken to."""
    address, _ = secure
    others = make_certificates(tmp_path / "others")
    with pytest.raises(PoolUnavailable, match="(?i)certificate"):
        await connect(f"rediss://{address}/0?{files(others)}", timeout_s=2)


async def test_a_client_without_a_certificate_is_refused(secure: tuple[str, Certificates]) -> None:
    """A server that asks for a certificate lets nobody in without one."""
    address, certificates = secure
    with pytest.raises(PoolUnavailable):
        await connect(f"rediss://{address}/0?ssl_ca_certs={certificates.authority}", timeout_s=2)
