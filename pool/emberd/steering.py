"""Calls on an execution that runs or has ended: read its output from an offset, write to its stdin, signal, resize."""

import signal
from typing import Any, Callable, Dict, Optional

from emberpool.pool.emberd import exec_request
from emberpool.pool.emberd.execution import Execution
from emberpool.pool.emberd.refusal import bad_request

MAX_READ = 1024 * 1024
"""Bytes of each stream in one answer."""

Do = Callable[[Execution, Dict[str, Any]], Dict[str, Any]]


def call_named(name: str) -> Optional[Do]:
    """What `POST /v1/exec/ID/NAME` does; None if there is no such call here."""
    return {"read": read, "stdin": write, "signal": send_signal, "resize": resize}.get(name)


def read(execution: Execution, body: Dict[str, Any]) -> Dict[str, Any]:
    """Output from the offsets on, as soon as there is any, and the end once there is one."""
    offsets = {name: _whole(name, body.get(name, 0), 0) for name in ("stdout", "stderr")}
    limit = min(_whole("limit", body.get("limit", 256 * 1024), 1), MAX_READ)
    seen = execution.read(offsets, limit, exec_request.wait_s(body))
    result = seen.pop("result")
    about: Dict[str, Any] = {"id": execution.request.id, "running": result is None}
    about["elapsed_s"] = round(execution.elapsed_s if result is None else result["duration_s"], 3)
    told: Dict[str, Any] = result or {}
    end: Dict[str, Any] = {name: told.get(name) for name in ("outcome", "exit_code", "signal", "shell")}
    end["survivors"] = bool(told.get("survivors", False))
    return {**about, **seen, **end}


def write(execution: Execution, body: Dict[str, Any]) -> Dict[str, Any]:
    """Bytes of stdin from an offset on, each written once however often they come."""
    data = exec_request.decoded("data", body.get("data") or "")
    offset = _whole("offset", body.get("offset"), 0)
    return execution.write(data, offset, bool(body.get("end", False)), exec_request.wait_s(body))


def send_signal(execution: Execution, body: Dict[str, Any]) -> Dict[str, Any]:
    """One signal to the command's process group."""
    number = _whole("signal", body.get("signal"), 1)
    if number >= signal.NSIG:
        raise bad_request("signal", "there is no such signal")
    return {"sent": execution.tell({"do": "signal", "signal": number})}


def resize(execution: Execution, body: Dict[str, Any]) -> Dict[str, Any]:
    """The size of the command's terminal."""
    return {"resized": execution.resize(*exec_request.window(body))}


def _whole(field: str, value: Any, least: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise bad_request(field, f"must be a whole number, {least} or more")
    return value
