"""Which certificates of emberds a worker accepts, and what it means when a connection fails for one.

That an answer is the pod's own is proved by its signature, with TLS or without; TLS keeps others from reading along.
"""

import ssl
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import aiohttp

from emberpool.pool.client.exchange import NotConnected
from emberpool.pool.model.errors import InvalidInput, PodUnreachable

_REMEDIES = {
    10: "renew the Secret that kubernetes.tls_secret names (pods read it anew), or the authority in tls_ca_file",
    9: "look at the clocks of worker and authority",
    62: "have the certificate name tls_server_name, or set that to a name that it has",
}
"""By OpenSSL's number of what a certificate lacks: it expired, is not valid yet, is another's."""
_OTHER_AUTHORITY = "have tls_ca_file hold the authority that signed the Secret of kubernetes.tls_secret"


@dataclass(frozen=True)
class Trust:
    """How a worker speaks TLS with emberds. Pods have no names of their own: all show one that is agreed upon."""

    context: ssl.SSLContext
    server_name: str
    only: bool = False
    """Whether pods that do not speak TLS are not spoken to, unless by a unix socket."""


def trust_in(ca_file: Path, server_name: str, only: bool = False) -> Trust:
    """Trust in the authorities of a file, and no others.

    Raises:
        InvalidInput: it cannot be read, holds no certificate, or those of authorities have all expired.
    """
    try:
        context = ssl.create_default_context(cafile=str(ca_file))
    except (OSError, ValueError) as error:
        raise InvalidInput("tls_ca_file", f"{ca_file} holds no certificates in PEM: {error}") from error
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    ends = [str(cast(dict[str, Any], one)["notAfter"]) for one in context.get_ca_certs()]
    if ends and max(map(ssl.cert_time_to_seconds, ends)) < time.time():
        raise InvalidInput("tls_ca_file", f"{ca_file} holds only what has expired, the last on {ends[-1]}")
    return Trust(context, server_name, only)


def untrusted(pod: str, detail: str, sent: bool = False) -> PodUnreachable:
    """The error of a pod with which there can be no connection as this worker wants it."""
    error = PodUnreachable(pod, detail, sent)
    error.untrusted = True
    return error


def lacks_trust(error: Exception) -> bool:
    """Whether it is this worker's trust that is wanting, which says nothing against the pod: others may have it."""
    return isinstance(error, PodUnreachable) and error.untrusted


def why_untrusted(error: Exception) -> str:
    """What is wrong with the other side's TLS and what to do about it; "" if that is not why the connection failed."""
    cause = _cause(error)
    if isinstance(cause, ssl.CertificateError):
        return (
            f"its certificate is refused: {cause.verify_message}: {_REMEDIES.get(cause.verify_code, _OTHER_AUTHORITY)}"
        )
    if isinstance(cause, ssl.SSLError):
        return (
            f"no TLS with it: {cause}: it was started without kubernetes.tls_secret, or something between "
            "worker and pod answers in its place"
        )
    return ""


def _cause(error: Exception) -> BaseException | None:
    """What `ssl` said of a connection that could not be made."""
    if isinstance(error, NotConnected):
        return error.__cause__
    if isinstance(error, aiohttp.ClientConnectorCertificateError):
        return error.certificate_error
    if isinstance(error, aiohttp.ClientConnectorSSLError):
        return cast(Exception, error.os_error)  # pyright: ignore[reportUnknownMemberType]
    return None
