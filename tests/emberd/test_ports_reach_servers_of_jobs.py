"""A server of a job is reached on the pod's loopback, while the lease is open; nothing else is."""

import pytest
from fixtures.emberd import Lease, new_id, open_lease, reset
from fixtures.waiting import wait_until
from pydantic import ValidationError

from emberpool.pool.client.ports import request_port
from emberpool.pool.client.processes import start_process
from emberpool.pool.model.command import Command
from emberpool.pool.model.errors import InvalidInput, PodRefused, PortUnreachable
from emberpool.pool.model.port import PortAnswer, PortRequest

SERVER = """
import http.server
class Echo(http.server.BaseHTTPRequestHandler):
    def do_POST(self):
        data = self.rfile.read(int(self.headers["content-length"]))
        self.send_response(302 if self.path == "/away" else 201)
        self.send_header("x-said", self.headers.get("x-say", ""))
        self.send_header("location", "http://192.0.2.1/")
        self.end_headers()
        self.wfile.write(self.path.encode() + b" " + data + b"\\xff" * (2000 if self.path == "/long" else 0))
    do_GET = do_POST
http.server.HTTPServer(("127.0.0.1", 8741), Echo).serve_forever()
"""


async def post(lease: Lease, **fields: object) -> PortAnswer:
    request = PortRequest.model_validate({"port": 8741, "method": "POST", **fields})
    return await request_port(lease.client, lease.pod, lease.proof, request)


async def served(lease: Lease) -> None:
    await lease.write("server.py", SERVER.encode())
    await start_process(lease.client, lease.pod, lease.proof, new_id(), Command(argv=("python3", "server.py")))

    async def answers() -> bool:
        try:
            return (await post(lease, body=b"x")).status == 201
        except PortUnreachable:
            return False

    await wait_until(answers)


async def test_requests_and_answers_pass_whole(room_lease: Lease) -> None:
    """Method, path with its query, headers and raw body go there; status, headers and body come back."""
    await served(room_lease)
    answer = await post(room_lease, path="/a?b=%20c", headers=(("x-say", "hi"),), body=b"\x00\xff")
    assert (answer.status, answer.body, dict(answer.headers)["x-said"]) == (201, b"/a?b=%20c \x00\xff", "hi")
    cut = await post(room_lease, path="/long", body=b"", headers=(("content-length", "9"),), limit=100)
    assert (len(cut.body), cut.truncated) == (100, True)
    moved = await post(room_lease, path="/away", body=b"x")
    assert moved.status == 302, "a redirection is an answer: nobody follows it"


async def test_nothing_but_the_jobs_own_loopback_is_reached(lease: Lease) -> None:
    """No host can be named, no path can become one; a port that was open before any job is refused."""
    for path in ("//192.0.2.1/", "http://192.0.2.1/", "/a b", "/a\r\nx-y: z"):
        if path == "//192.0.2.1/":
            with pytest.raises(PortUnreachable):
                await post(lease, path=path, port=8749)
            continue
        with pytest.raises(ValidationError):
            await post(lease, path=path)
    with pytest.raises(PortUnreachable):
        await post(lease, port=8749)
    with pytest.raises(InvalidInput):
        await lease.client.ask(lease.pod, lease.proof, "/v1/http", {"port": 80, "path": "/a\r\nx: y"})


async def test_the_access_ends_with_the_lease(room_lease: Lease) -> None:
    """After a reset neither the old lease nor the next one reaches what the old one served."""
    await served(room_lease)
    await reset(room_lease)
    with pytest.raises(PodRefused):
        await post(room_lease)
    following = open_lease(room_lease.emberd, room_lease.client)
    with pytest.raises(PortUnreachable):
        await post(following)
