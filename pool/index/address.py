"""Where Redis is, as one URL: a server, a group behind Sentinels, or a Cluster."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final
from urllib.parse import parse_qsl, unquote, urlsplit

SERVER: Final = ("redis", "rediss", "unix")
SENTINEL: Final = "sentinel"
CLUSTER: Final = "redis-cluster"

_TLS_FILES = {"ssl_ca_certs", "ssl_certfile", "ssl_keyfile"}
_OPTIONS = {SENTINEL: {"tls", "sentinel_username", "sentinel_password", *_TLS_FILES}, CLUSTER: {"tls", *_TLS_FILES}}
_PORTS = {SENTINEL: 26379, CLUSTER: 6379}
_YES = {"1": True, "true": True, "yes": True, "0": False, "false": False, "no": False}


@dataclass(frozen=True)
class RedisAddress:
    """A URL taken apart. Never printed whole: it holds passwords."""

    scheme: str
    url: str = field(repr=False)
    nodes: tuple[tuple[str, int], ...] = ()
    """Sentinels, or some nodes of the Cluster; empty for a server, whose URL redis-py reads itself."""
    service: str = ""
    """What the Sentinels call the group."""
    db: int = 0
    username: str | None = None
    password: str | None = field(default=None, repr=False)
    tls: bool = False
    options: Mapping[str, str] = field(default_factory=dict[str, str], repr=False)
    """The rest of the query."""

    def tls_files(self) -> dict[str, str]:
        """The options that name files of TLS."""
        return {name: value for name, value in self.options.items() if name in _TLS_FILES}


def parse_address(url: str) -> RedisAddress:
    """Read `redis://`, `rediss://`, `unix://`, `sentinel://HOST:PORT,…/SERVICE[/DB]` or `redis-cluster://HOST:PORT,…`.

    Sentinel and Cluster take `?tls=true`, `ssl_ca_certs`, `ssl_certfile` and `ssl_keyfile`; Sentinel also
    `sentinel_username` and `sentinel_password`, its own login where it differs from the servers'.

    Raises:
        ValueError: it is none of these; the text says what is wrong and repeats no password.
    """
    scheme, separator, _ = url.partition("://")
    if not separator or scheme not in (*SERVER, SENTINEL, CLUSTER):
        raise ValueError(f"must begin with one of {', '.join(f'{one}://' for one in (*SERVER, SENTINEL, CLUSTER))}")
    if scheme in SERVER:
        return RedisAddress(scheme, url)
    # Apart from the rest: a list of hosts is no host, which some versions of urlsplit check.
    authority, rest = _authority(url)
    parts = urlsplit(f"{scheme}://{rest}")
    login, _, hosts = authority.rpartition("@")
    username, _, password = login.partition(":")
    options = dict(parse_qsl(parts.query))
    unknown = set(options) - _OPTIONS[scheme]
    if unknown:
        raise ValueError(f"unknown option {min(unknown)!r}; there are: {', '.join(sorted(_OPTIONS[scheme]))}")
    service, db = _path(scheme, parts.path)
    return RedisAddress(
        scheme,
        url,
        nodes=tuple(_node(host, _PORTS[scheme]) for host in hosts.split(",")),
        service=service,
        db=db,
        username=unquote(username) or None,
        password=unquote(password) or None,
        tls=_yes(options.pop("tls", "false")),
        options=options,
    )


def _authority(url: str) -> tuple[str, str]:
    """What stands between `//` and the path or query, and what follows."""
    after = url.partition("://")[2]
    end = min((at for at in map(after.find, "/?#") if at >= 0), default=len(after))
    return after[:end], after[end:]


def _node(text: str, port: int) -> tuple[str, int]:
    parts = urlsplit(f"//{text}")
    if not parts.hostname:
        raise ValueError(f"{text!r} is no HOST:PORT")
    return parts.hostname, parts.port or port


def _path(scheme: str, path: str) -> tuple[str, int]:
    """Service and database."""
    words = [unquote(word) for word in path.split("/") if word]
    if scheme == CLUSTER:
        if words not in ([], ["0"]):
            raise ValueError("a Cluster has database 0 only: end the URL after the nodes")
        return "", 0
    if not words or len(words) > 2 or not words[-1].isdigit() and len(words) == 2:
        raise ValueError("must end with the service's name, as in sentinel://HOST:PORT,HOST:PORT/SERVICE")
    return words[0], int(words[1]) if len(words) == 2 else 0


def _yes(text: str) -> bool:
    if text.lower() not in _YES:
        raise ValueError(f"tls={text!r}: use true or false")
    return _YES[text.lower()]
