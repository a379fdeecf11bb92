"""Calls to emberd: signed, kept alive, and re-attached to by execution id when a connection is lost."""

import asyncio
import base64
import json
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any, ParamSpec, Self, TypeVar, cast
from urllib.parse import quote, urlencode

from pydantic_core import PydanticSerializationError, from_json, to_json

from emberpool.pool.client.answers import EmberdState, LeaseProof, Progress, command_result, to_progress
from emberpool.pool.client.refusals import error_of, path_bytes, unsigned
from emberpool.pool.client.signing import PodSigner, RequestSigner, pod_key
from emberpool.pool.client.transfers import Transfers
from emberpool.pool.client.transport import LARGE, RawAnswer, Transport
from emberpool.pool.client.trust import Trust
from emberpool.pool.model.claim import PodAddress
from emberpool.pool.model.command import Command, CommandResult
from emberpool.pool.model.errors import InvalidInput, PodRefused, PodUnreachable, SandboxFileError
from emberpool.pool.model.ids import ExecutionId, PodName
from emberpool.pool.model.recycle import Attestation
from emberpool.pool.model.rollout import TextFile

__all__ = ["EmberdClient", "EmberdState", "LeaseProof", "Progress", "pod_key"]

ANSWER_S = 15.0
"""Seconds within which emberd answers a call that does not wait; added to every wait."""
AGAIN_S = 5.0
"""The same for a run's next question after one that was not answered."""
SILENT_S = 30.0
"""Seconds without any answer before a run gives up, however few questions that are."""
TRANSFER_S = 120.0
"""Seconds for a call that carries a file, or kills and resets."""
REATTACH_TRIES = 6
"""Lost connections in a row, without an answer between, before a run gives up."""
CONNECT_TRIES = 2
"""The same while nothing was ever sent: a new claim moves to another pod sooner."""
OVERTIME_S = 30.0
"""Seconds past the command's own limit after which no answer is expected any more."""
MAX_FILE_BYTES = 64 * 1024 * 1024
SIGNERS_KEPT = 4096
"""Pods whose signer is kept, the last used. Another is made in microseconds, but is another sender to its emberd, which
takes so many under one lease."""
LEASE_OVER = "lease_over"
"""emberd's word for a lease that ended while a call waited: what the call had started did run."""

P = ParamSpec("P")
T = TypeVar("T")

NO_PROOF = LeaseProof("", 0, "", 0.0)


class EmberdClient:
    """One per worker and event loop.

    Every call raises PodUnreachable (no answer, or none that the key vouches for), PodRefused (409 and unknown
    executions) and InvalidInput (400), besides what it names itself.
    """

    def __init__(self, pool_key: bytes, trust: Trust | None = None) -> None:
        """`trust`: how it speaks TLS with pods that do; None if none does."""
        self._pool_key = pool_key
        self._pod_signer = lru_cache(SIGNERS_KEPT)(self._new_signer)
        self._transport = Transport(trust)
        self.transfers = Transfers(self._transport, self._signer, self.call)
        """Files and folders of any size, listing and removing."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Close every connection; commands go on."""
        await self._transport.aclose()

    async def state(self, name: PodName, endpoint: str, timeout_s: float = ANSWER_S) -> EmberdState:
        """What emberd says of itself; needs no lease."""
        pod = PodAddress.model_construct(name=name, uid="", boot_id="", endpoint=endpoint)
        answer = await self.call(pod, NO_PROOF, "GET", "/v1/state", timeout_s=timeout_s)
        return EmberdState.model_validate_json(answer.body)

    async def run(
        self,
        pod: PodAddress,
        proof: LeaseProof,
        execution_id: ExecutionId,
        command: Command,
        *,
        poll_s: float = 5.0,
        on_progress: Callable[[Progress], None] | None = None,
    ) -> CommandResult:
        """Start the command, or join it if this id was started before, and wait for its end.

        `on_progress` is called about every `poll_s` seconds. Cancelling this leaves the command running.
        A lost connection is made anew and the execution joined, `REATTACH_TRIES` times in a row.

        Raises:
            PodUnreachable, PodRefused: with `sent` True if the command may have started.
        """
        loop = asyncio.get_running_loop()
        give_up = loop.time() + command.time_limit_s + OVERTIME_S
        lost, known, sent, heard = 0, False, False, loop.time()
        while True:
            try:
                wait_s, answer_s = (0.0, AGAIN_S) if lost else (poll_s, ANSWER_S)
                answer = await self._poll(pod, proof, execution_id, command, wait_s, known, wait_s + answer_s)
            except PodUnreachable as error:
                lost, sent = lost + 1, sent or error.sent
                tries = REATTACH_TRIES if sent else CONNECT_TRIES
                if lost > tries or loop.time() > min(give_up, heard + SILENT_S):
                    error.sent, error.silent_s = sent, loop.time() - heard
                    raise
                await asyncio.sleep(min(2.0, 0.05 * 2**lost))
                continue
            except PodRefused as error:
                raise PodRefused(error.word, error.detail, sent or error.word == LEASE_OVER) from error
            lost, known, sent, heard = 0, True, True, loop.time()
            if not answer["running"]:
                return command_result(answer, command.time_limit_s)
            if loop.time() > give_up:
                raise PodUnreachable(pod.name, f"{execution_id} is past its time limit and still runs", sent=True)
            if on_progress is not None:
                on_progress(to_progress(answer))

    async def look(self, pod: PodAddress, proof: LeaseProof, execution_id: ExecutionId) -> Progress | None:
        """How far an execution is, at once; None if it has ended, or was not started yet."""
        target = f"/v1/exec/{quote(execution_id, safe='')}/wait"
        try:
            answer = await self._json(pod, proof, target, {"wait_s": 0.0}, ANSWER_S)
        except PodRefused as error:
            if error.word != "unknown_execution":
                raise
            return None
        return to_progress(answer) if answer["running"] else None

    async def kill(self, pod: PodAddress, proof: LeaseProof, execution_id: ExecutionId) -> CommandResult:
        """Kill the whole tree of an execution, its survivors too, and return how it ended."""
        target = f"/v1/exec/{quote(execution_id, safe='')}/kill"
        answer = await self._json(pod, proof, target, {}, TRANSFER_S)
        if answer["running"]:
            raise PodUnreachable(pod.name, f"{execution_id} was killed and does not end", sent=True)
        return command_result(answer, 0.0)

    async def write_file(self, pod: PodAddress, proof: LeaseProof, path: str, data: bytes, mode: int = 0o644) -> None:
        """Write a file whole or not at all; missing parents are made.

        Raises:
            SandboxFileError: no regular file can be written there, or it is over 64 MiB.
        """
        if len(data) > MAX_FILE_BYTES:
            raise SandboxFileError(path, "too_large", f"{len(data)} bytes, the limit is {MAX_FILE_BYTES}")
        target = f"/v1/file?path={quote(path_bytes(path), safe='')}&mode={mode:04o}"
        await self.call(pod, proof, "PUT", target, data, TRANSFER_S, path)

    async def read_file(
        self, pod: PodAddress, proof: LeaseProof, path: str, limit: int = MAX_FILE_BYTES, offset: int | None = None
    ) -> bytes:
        """The bytes of a file. With `offset`, at most `limit` bytes from there; without, all of it.

        Raises:
            SandboxFileError: not there, no regular file, or over `limit` without an offset.
        """
        fields = {"path": path_bytes(path), "limit": str(limit)} | ({} if offset is None else {"offset": str(offset)})
        target = f"/v1/file?{urlencode(fields, quote_via=quote, safe='')}"
        return (await self.call(pod, proof, "GET", target, b"", TRANSFER_S, path)).body

    async def bind(
        self, pod: PodAddress, proof: LeaseProof, env: Mapping[str, str], files: Sequence[TextFile] = ()
    ) -> None:
        """Set environment for every later command of the lease, and write files.

        Raises:
            SandboxFileError: one of the files cannot be written.
        """
        listed = [
            {"path": file.path, "mode": file.mode, "data": base64.b64encode(_text(file)).decode("ascii")}
            for file in files
        ]
        paths = ", ".join(file.path for file in files)
        await self._json(pod, proof, "/v1/bind", {"env": dict(env), "files": listed}, TRANSFER_S, paths)

    async def fence(self, pod: PodAddress, epoch: int) -> EmberdState:
        """End whatever lease the pod has: dirty at `epoch`, nothing of a job runs on."""
        body = json.dumps({"epoch": epoch}).encode("ascii")
        proof = LeaseProof("", epoch, "", 0.0)
        answer = await self.call(pod, proof, "POST", "/v1/fence", body, TRANSFER_S)
        return EmberdState.model_validate_json(answer.body)

    async def recycle(self, pod: PodAddress, epoch: int) -> Attestation:
        """Reset a pod that was fenced at `epoch`. It is clean only if the attestation holds."""
        body = json.dumps({"epoch": epoch}).encode("ascii")
        proof = LeaseProof("", epoch, "", 0.0)
        answer = await self.call(pod, proof, "POST", "/v1/recycle", body, TRANSFER_S)
        return Attestation.model_validate_json(answer.body)

    async def restart(self, pod: PodAddress, epoch: int) -> None:
        """Have the emberd of a pod that was fenced at `epoch` end with all below it, so that it is started anew."""
        body = {"epoch": epoch}
        await self._json(pod, LeaseProof("", epoch, "", 0.0), "/v1/restart", body, TRANSFER_S)

    async def promote(self, pod: PodAddress) -> None:
        """Have a standby pod take its full share. Idempotent."""
        await self._json(pod, NO_PROOF, "/v1/promote", {}, TRANSFER_S)

    async def swap_image(self, pod: PodAddress, epoch: int, image: str) -> None:
        """Have a clean pod's next lease find another image. `epoch` is above every one that the pod has had.

        Raises:
            PodRefused: `no_image` (it was started without it), `no_room`, `not_clean`, `stale_epoch`; nothing changed.
        """
        proof = LeaseProof("", epoch, "", 0.0)
        await self._json(pod, proof, "/v1/image", {"epoch": epoch, "image": image}, TRANSFER_S)

    async def _poll(
        self,
        pod: PodAddress,
        proof: LeaseProof,
        execution_id: str,
        command: Command,
        wait_s: float,
        known: bool,
        limit_s: float,
    ) -> dict[str, Any]:
        if known:
            target = f"/v1/exec/{quote(execution_id, safe='')}/wait"
            return await self._json(pod, proof, target, {"wait_s": wait_s}, limit_s)
        body = command.model_dump(mode="json", exclude={"replay_safe"})
        body |= {"id": execution_id, "wait_s": wait_s}
        return await self._json(pod, proof, "/v1/exec", body, limit_s)

    async def ask(
        self, pod: PodAddress, proof: LeaseProof, target: str, body: dict[str, Any], wait_s: float = 0.0
    ) -> dict[str, Any]:
        """One POST and its answer, for the kinds of calls that have a module of their own; it may wait `wait_s`."""
        return await self._json(pod, proof, target, body, wait_s + ANSWER_S)

    async def get_json(self, pod: PodAddress, proof: LeaseProof, target: str) -> dict[str, Any]:
        """One GET and its answer, likewise."""
        answer: dict[str, Any] = json.loads((await self.call(pod, proof, "GET", target)).body)
        return answer

    async def _json(
        self,
        pod: PodAddress,
        proof: LeaseProof,
        target: str,
        body: dict[str, Any],
        timeout_s: float,
        path: str | None = None,
    ) -> dict[str, Any]:
        try:
            data = _to_json(body)
        except (TypeError, ValueError) as error:
            raise InvalidInput("body", str(error)) from error
        return _from_json((await self.call(pod, proof, "POST", target, data, timeout_s, path)).body)

    async def call(
        self,
        pod: PodAddress,
        proof: LeaseProof,
        method: str,
        target: str,
        body: bytes = b"",
        timeout_s: float = ANSWER_S,
        path: str | None = None,
    ) -> RawAnswer:
        """One signed request and its checked answer, also for calls that have a module of their own.

        `path`: the file that the call is about, for its error.
        """
        signer = self._signer(pod.name)
        hold = f"{proof.hold_s:.3f}" if proof.hold_s else ""
        signed = (method, target, body, proof.request_id, proof.epoch, proof.tag, pod.boot_id, hold)
        headers = await _hashed(body, signer.headers, *signed)
        answer = await self._transport.send(pod.name, pod.endpoint, method, target, headers, body, timeout_s)
        mac = answer.headers.get("x-ember-mac", "")
        if not await _hashed(answer.body, signer.accepts, answer.status, answer.body, mac):
            raise unsigned(pod, answer.status, answer.body)
        if answer.status != 200:
            raise error_of(pod, answer.status, answer.body, path)
        return answer

    def _new_signer(self, name: str) -> PodSigner:
        return PodSigner(pod_key(self._pool_key, name))

    def _signer(self, name: str) -> RequestSigner:
        return self._pod_signer(name).request()


async def _hashed(body: bytes, hash_it: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Call `hash_it`, in a thread if `body` is large."""
    if len(body) < LARGE:
        return hash_it(*args, **kwargs)
    return await asyncio.to_thread(hash_it, *args, **kwargs)


def _to_json(body: dict[str, Any]) -> bytes:
    """By pydantic, which is much faster; what it cannot, lone surrogates of odd file names, by the standard library.

    Raises:
        TypeError, ValueError: it cannot be said in JSON.
    """
    try:
        return to_json(body)
    except (PydanticSerializationError, UnicodeError):
        return json.dumps(body).encode("ascii")


def _from_json(text: bytes) -> dict[str, Any]:
    """The same the other way."""
    try:
        return cast(dict[str, Any], from_json(text))
    except ValueError:
        return cast(dict[str, Any], json.loads(text))


def _text(file: TextFile) -> bytes:
    try:
        return file.text.encode("utf-8")
    except UnicodeEncodeError as error:
        raise InvalidInput(f"files[{file.path}]", "holds a lone surrogate") from error
