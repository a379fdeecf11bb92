"""An address of Redis is read right, or refused with what is wrong about it, and never shows a password."""

import pytest

from emberpool.pool.index.address import parse_address
from emberpool.pool.index.connection import connect
from emberpool.pool.model.errors import InvalidInput


def test_sentinels() -> None:
    """Several hosts, default port, service, database, login and options."""
    url = "sentinel://u:p%40ss@one:1,two,[::1]:3/main/4?tls=true&ssl_ca_certs=/ca.pem&sentinel_password=x"
    address = parse_address(url)
    assert address.nodes == (("one", 1), ("two", 26379), ("::1", 3))
    assert (address.service, address.db, address.username, address.password) == ("main", 4, "u", "p@ss")
    assert address.tls and address.tls_files() == {"ssl_ca_certs": "/ca.pem"}
    assert "p@ss" not in repr(address) and "p%40ss" not in repr(address)


def test_a_cluster() -> None:
    """Several nodes, and a password without a user."""
    address = parse_address("redis-cluster://:pw@one:7000,two/0")
    assert address.nodes == (("one", 7000), ("two", 6379))
    assert (address.username, address.password, address.tls) == (None, "pw", False)


@pytest.mark.parametrize(
    ("url", "problem"),
    [
        ("localhost:6379", "must begin with"),
        ("http://localhost", "must begin with"),
        ("sentinel://one:1", "end with the service's name"),
        ("sentinel://one:1/main/x", "end with the service's name"),
        ("sentinel:///main", "no HOST:PORT"),
        ("sentinel://one:1,,two/main", "no HOST:PORT"),
        ("sentinel://one:port/main", "port"),
        ("redis-cluster://one/3", "database 0 only"),
        ("redis-cluster://one?tls=maybe", "true or false"),
        ("redis-cluster://one?sentinel_password=x", "unknown option"),
        ("sentinel://u:secret@one:1/main?verify=no", "unknown option 'verify'"),
    ],
)
async def test_what_is_wrong_is_named(url: str, problem: str) -> None:
    """The setting's name, what is wrong, no password."""
    with pytest.raises(InvalidInput, match=problem) as caught:
        await connect(url)
    assert caught.value.field == "redis_url" and "secret" not in str(caught.value)
