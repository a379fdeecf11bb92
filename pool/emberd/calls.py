"""The calls of docs/emberd-protocol.md, once a request's signature is known to be right."""

import base64
import json
import os
import signal
import threading
import time
from typing import Any, Callable, Dict, List, NamedTuple, Optional, Tuple

from emberpool.pool.emberd import exec_request, filecalls, netns, steering, tasks
from emberpool.pool.emberd.config import Config, RoomSpec
from emberpool.pool.emberd.exec_request import Request
from emberpool.pool.emberd.execution import Execution
from emberpool.pool.emberd.executions import Executions
from emberpool.pool.emberd.gpu import Gpus
from emberpool.pool.emberd.keeper import Keeper
from emberpool.pool.emberd.layers import Layers
from emberpool.pool.emberd.ledger import Ledger, View
from emberpool.pool.emberd.peering import Peering
from emberpool.pool.emberd.ports import Ports
from emberpool.pool.emberd.refusal import Refused, bad_request
from emberpool.pool.emberd.room import Room, RoomError
from emberpool.pool.emberd.shape import as_list, as_object
from emberpool.pool.emberd.shaping import Shaping
from emberpool.pool.emberd.shellcalls import Shells
from emberpool.pool.emberd.signing import Claim, Signer
from emberpool.pool.emberd.spill import SpillFolder
from emberpool.pool.emberd.watchdog import Watchdog

START_ANEW = signal.SIGUSR1
"""What emberd tells its own main thread to leave by, with the exit status that says so."""


class Answer(NamedTuple):
    """Status 200: a JSON body or a file's bytes, and headers of its own."""

    body: bytes
    headers: Tuple[Tuple[str, str], ...] = ()
    kind: str = "application/json"
    then: Optional[Callable[[], None]] = None
    """To be done when it is sent."""
    after: Optional[Callable[[], None]] = None
    """To be done soon after that, also if it could not be sent."""


class Calls:
    """What each call does. Every method may be called from any thread."""

    def __init__(
        self, config: Config, signer: Signer, ledger: Ledger, keeper: Keeper, layers: Layers, gpus: Gpus
    ) -> None:
        self._gpus = gpus
        self._config, self._signer, self._ledger, self._keeper = config, signer, ledger, keeper
        self.layers = layers
        self._spills = SpillFolder(keeper.trash, config.room.limits.file_mb * 1024 * 1024)
        self.executions = Executions(self._spills)
        self._shells = Shells(self.executions)
        self.ports = Ports()
        self._peering = Peering(config.switch)
        self._watchdog = Watchdog(
            self.executions,
            keeper.shape.memory_mb,
            config.room.limits.disk_mb,
            tasks.most(config.room),
            keeper.written_folders,
            lambda: layers.bytes_used,
        )
        self._shaping = Shaping(config, ledger, keeper, self._watchdog)
        self._bound: Dict[str, str] = {}
        self._attestation: Optional[Dict[str, Any]] = None
        self._reset = threading.Lock()
        self._began = time.monotonic()

    @property
    def room_spec(self) -> RoomSpec:
        """How rooms are made here."""
        return self._config.room

    def begin(self, claim: Claim) -> None:
        """Admit a call of a lease. `end` must follow. Raises Refused."""
        with self._ledger.lock:
            self._shaping.demand_share()
            if self._ledger.begin(claim):
                self._forget_lease()
                self._signer.forget_below(claim.epoch)

    def end(self, claim: Claim) -> None:
        """The call is over."""
        self._ledger.end(claim)

    def state(self) -> Answer:
        """GET /v1/state."""
        view = self._ledger.view()
        about = {"version": 1, "pod": self._config.pod, "uid": self._config.uid, "boot_id": self._signer.boot_id}
        mode = self._config.room.mode
        shape = {"image": self._shaping.image, "standby": self._shaping.standby}
        return json_answer(
            dict(about, **view._asdict(), **shape, room_mode=mode, attestation=self._attestation, **self._keeper.about)
        )

    def start(self, claim: Claim, body: Dict[str, Any]) -> Answer:
        """POST /v1/exec."""
        wait_s = exec_request.wait_s(body)
        with self._ledger.lock:
            self._ledger.demand_holder(claim)
            room = self._room()
            env = {**self._config.env, **room.shape.root.env, **self._bound}
            request = exec_request.parse(body, {**room.env, **env}, room.work, self._config.room.limits.time_limit_s)
            request.env.update(self._gpus.visible(request.env))  # last: nothing that a job binds or asks widens it
            try:
                execution = self.executions.start_or_join(
                    request, lambda wanted: Execution(wanted, room, self._spills, self._watchdog.wake)
                )
            except RoomError as error:
                raise self._lost(error) from error
        return self._outcome(claim, execution, wait_s)

    def start_shell(self, claim: Claim, body: Dict[str, Any]) -> Answer:
        """POST /v1/shell."""
        with self._ledger.lock:
            self._ledger.demand_holder(claim)
            room = self._room()
            env = {**room.env, **self._config.env, **room.shape.root.env, **self._bound}
            try:
                execution = self._shells.start(body, env, room, self._gpus)
            except RoomError as error:
                raise self._lost(error) from error
        self._watchdog.wake()
        return json_answer(_line(execution))

    def run_in_shell(self, claim: Claim, name: str, body: Dict[str, Any]) -> Answer:
        """POST /v1/shell/ID/run."""
        wait_s = exec_request.wait_s(body)
        with self._ledger.lock:
            self._ledger.demand_holder(claim)
            execution = self._shells.run(name, body, self._config.room.limits.time_limit_s)
        return self._outcome(claim, execution, wait_s)

    def steer(self, claim: Claim, execution_id: str, name: str, body: Dict[str, Any]) -> Answer:
        """POST /v1/exec/ID/read, stdin, signal, resize."""
        do = steering.call_named(name)
        if do is None:
            raise bad_request("path", "there is no such call")
        answer = do(self.execution(claim, execution_id), body)
        self._demand_lease(claim)
        return json_answer(answer)

    def request_port(self, claim: Claim, body: Dict[str, Any]) -> Answer:
        """POST /v1/http."""
        room = self.holder_room(claim) if self._config.room.own_network else None

        def in_room(do: Callable[[], None]) -> None:
            assert room is not None
            with netns.of_process(room.pid) as namespace:
                self._demand_lease(claim)  # the room lived when its namespace was opened: it is no later process's
                netns.run_in(namespace, do)

        answer = self.ports.request(body, in_room if room is not None else None)
        self._demand_lease(claim)
        return json_answer(answer)

    def join_network(self, claim: Claim, body: Dict[str, Any]) -> Answer:
        """POST /v1/network."""
        answer = self._peering.join(self.holder_room(claim), body, lambda: self._demand_lease(claim))
        self._demand_lease(claim)
        return json_answer(answer)

    def wait(self, claim: Claim, execution_id: str, body: Dict[str, Any]) -> Answer:
        """POST /v1/exec/ID/wait."""
        return self._outcome(claim, self.execution(claim, execution_id), exec_request.wait_s(body))

    def kill(self, claim: Claim, execution_id: str) -> Answer:
        """POST /v1/exec/ID/kill."""
        execution = self.execution(claim, execution_id)
        execution.kill("cancelled")
        return self._outcome(claim, execution, 10.0)

    def list(self, claim: Claim) -> Answer:
        """GET /v1/exec."""
        with self._ledger.lock:
            self._ledger.demand_holder(claim)
            return json_answer({"executions": [_line(execution) for execution in self.executions.all()]})

    def put_file(self, claim: Claim, path: str, mode: int, data: bytes) -> Answer:
        """PUT /v1/file."""
        try:
            filecalls.put(self.holder_room(claim), path, mode, data)
        except RoomError as error:
            raise self.gone(claim, error) from error
        return json_answer({"bytes": len(data)})

    def get_file(self, claim: Claim, path: str, offset: Optional[int], limit: int) -> Answer:
        """GET /v1/file."""
        try:
            size, data = filecalls.get(self.holder_room(claim), path, offset, limit)
        except RoomError as error:
            raise self.gone(claim, error) from error
        return Answer(data, (("x-ember-size", str(size)),), "application/octet-stream")

    def bind(self, claim: Claim, body: Dict[str, Any]) -> Answer:
        """POST /v1/bind."""
        env = exec_request.checked_env(body.get("env") or {})
        files: List[Tuple[str, int, bytes]] = []
        listed = as_list(body.get("files") or [])
        if listed is None:
            raise bad_request("files", "must be a list")
        for item in map(as_object, listed):
            if item is None:
                raise bad_request("files", "must be objects")
            path = filecalls.checked_path(item.get("path"))
            mode = filecalls.checked_mode(item.get("mode", 0o644))
            files.append((path, mode, exec_request.decoded("files.data", item.get("data") or "")))
        room = self.holder_room(claim)
        try:
            for path, mode, data in files:
                filecalls.put(room, path, mode, data)
        except RoomError as error:
            raise self.gone(claim, error) from error
        with self._ledger.lock:
            self._ledger.demand_holder(claim)
            self._bound.update(env)
        return json_answer({})

    def place_layer(self, claim: Claim, key: str, body: Dict[str, Any]) -> Answer:
        """POST /v1/layer/KEY/place."""
        path = filecalls.checked_path(body.get("path"))
        try:
            filecalls.place(self.holder_room(claim), self.layers.path(key), path)
        except RoomError as error:
            raise self.gone(claim, error) from error
        return json_answer({})

    def fence(self, epoch: int) -> Answer:
        """POST /v1/fence: the ledger turns first, so nothing new can start; then what runs is ended."""
        with self._reset:
            self._ledger.fence(epoch)
            self._signer.forget_below(epoch)
            self._forget_lease()
            self._keeper.end_current()
        return self.state()

    def _demand_dirty(self, view: View, epoch: int) -> None:
        if view.state != "dirty" or view.epoch != epoch:
            raise Refused(409, "not_fenced", f"state is {view.state} at epoch {view.epoch}")

    def recycle(self, epoch: int) -> Answer:
        """POST /v1/recycle."""
        with self._reset:
            view = self._ledger.view()
            if view.state == "clean" and view.epoch == epoch and self._attestation is not None:
                return json_answer(self._attestation)
            self._demand_dirty(view, epoch)
            self._keeper.end_current()  # a start that found itself dirty has a room that nobody used
            try:
                outcome: Dict[str, Any] = self._keeper.replace()
            except (RoomError, OSError) as error:
                outcome = {"tier": "none", "checks": {}, "duration_ms": 0.0, "detail": str(error)}
            age_s = round(time.monotonic() - self._began, 3)
            outcome.update(uses=view.uses, at=round(time.time(), 3), age_s=age_s, restarted=self._ledger.is_anew)
            if outcome["restarted"] and outcome["tier"] == "sweep" and self._config.room.job_uid:
                outcome["tier"] = "restart"  # there was nothing to sweep: it went with the life before this one
            self._attestation = outcome
            if outcome["checks"] and all(outcome["checks"].values()):
                self._ledger.become_clean(epoch)
            return json_answer(outcome)

    def restart(self, epoch: int) -> Answer:
        """POST /v1/restart: emberd ends with all below it, once this is answered. Whoever started it starts it anew."""
        with self._reset:
            self._demand_dirty(self._ledger.view(), epoch)
            return json_answer({})._replace(then=lambda: os.kill(os.getpid(), START_ANEW))

    def promote(self) -> Answer:
        """POST /v1/promote."""
        with self._reset:
            return json_answer(self._shaping.promote())

    def swap(self, epoch: int, body: Dict[str, Any]) -> Answer:
        """POST /v1/image."""
        with self._reset:
            return json_answer(self._shaping.swap(epoch, body.get("image")))

    def _outcome(self, claim: Claim, execution: Execution, wait_s: float) -> Answer:
        result = execution.wait(wait_s)
        try:
            return self._told(claim, execution, result)._replace(after=execution.settle)
        except Refused:
            execution.settle()
            raise

    def _told(self, claim: Claim, execution: Execution, result: Optional[Dict[str, Any]]) -> Answer:
        self._demand_lease(claim)
        about: Dict[str, Any] = {
            "id": execution.request.id,
            "running": result is None,
            "elapsed_s": round(execution.elapsed_s, 3),
        }
        if result is None:
            return json_answer(dict(about, **_unfinished(execution)))
        kept = {name: base64.b64encode(result[name]).decode("ascii") for name in ("stdout", "stderr")}
        return json_answer({**about, **result, **kept})

    def _demand_lease(self, claim: Claim) -> None:
        try:
            self._ledger.demand_holder(claim)  # a fence may have ended it: then this is no result
        except Refused as refusal:
            raise Refused(409, "lease_over", refusal.detail) from refusal

    def execution(self, claim: Claim, execution_id: str) -> Execution:
        """An execution of the claim's lease. Raises Refused."""
        with self._ledger.lock:
            self._ledger.demand_holder(claim)
            return self.executions.get(execution_id)

    def demand_holder(self, claim: Claim) -> None:
        """Raises Refused if the lease is over."""
        self._ledger.demand_holder(claim)

    def holder_room(self, claim: Claim) -> Room:
        """The room of the lease, if it is this claim's. Raises Refused."""
        with self._ledger.lock:
            self._ledger.demand_holder(claim)
            return self._room()

    def _room(self) -> Room:
        room = self._keeper.current
        if room is None:
            raise self._lost(RoomError("there is no room"))
        return room

    def gone(self, claim: Claim, error: RoomError) -> Refused:
        """What a call says whose room ended under it: that the lease is over."""
        try:
            self._ledger.demand_holder(claim)
        except Refused as refusal:
            return refusal
        return self._lost(error)

    def judged(self, claim: Claim, refusal: Refused) -> Refused:
        """What a call says that went wrong: its own refusal, unless the lease ended under it."""
        try:
            self._ledger.demand_holder(claim)
        except Refused as over:
            return over
        return refusal

    def _lost(self, error: RoomError) -> Refused:
        self._ledger.lose()
        return Refused(409, "stale_epoch", f"the lease is over: {error}")

    def _forget_lease(self) -> None:
        self.executions.forget_all()
        self._shells.forget_all()
        self._bound = {}
        self.layers.lease_ended()


def run_warm_up(config: Config, room: Room) -> Optional[str]:
    """Run the profile's warm-up in the first room; why it failed, or None."""
    limit_s = config.room.limits.time_limit_s
    env = {**room.env, **config.env}
    request = Request("warm-up", config.warm_up, env, room.work, b"", limit_s, 4096, "warm-up")
    try:
        result = Execution(request, room).wait(limit_s + 10)
    except RoomError as error:
        return str(error)
    if result is not None and result["outcome"] == "exited" and result["exit_code"] == 0:
        return None
    if result is None:
        return "warm_up does not end"
    how = result["exit_code"] if result["outcome"] == "exited" else result["outcome"]
    return f"warm_up ended with {how}: {result['stderr'][-500:].decode('utf-8', 'replace')}"


def json_answer(data: Dict[str, Any]) -> Answer:
    """Status 200 with a JSON body."""
    return Answer(json.dumps(data).encode("ascii"))


def _line(execution: Execution) -> Dict[str, Any]:
    elapsed = round(execution.elapsed_s, 3)
    request = execution.request
    return {"id": request.id, "running": execution.running, "elapsed_s": elapsed, "command": request.title}


def _unfinished(execution: Execution) -> Dict[str, Any]:
    streams = {"stdout": execution.stdout, "stderr": execution.stderr}
    tails = {name: base64.b64encode(stream.tail()).decode("ascii") for name, stream in streams.items()}
    counts = {name + "_bytes": stream.total for name, stream in streams.items()}
    rest = {"outcome": None, "exit_code": None, "signal": None, "truncated": False, "survivors": False}
    return {**tails, **counts, **rest, "duration_s": round(execution.elapsed_s, 6)}
