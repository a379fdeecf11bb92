"""Reading the output of an execution from an offset on: what is kept of it, and where the kept part begins."""

import base64
from typing import TYPE_CHECKING, Any, Dict, Iterator, Optional

from emberpool.pool.emberd.refusal import Refused

if TYPE_CHECKING:
    from emberpool.pool.emberd.execution import Execution
    from emberpool.pool.emberd.spill import Spill


def of_running(execution: "Execution", name: str, offset: int, limit: int) -> Dict[str, Any]:
    """From the kept window of a stream that goes on. The caller holds the execution's lock."""
    capture = execution.capture(name)
    start, data = capture.since(offset, limit)
    return _told(start, data, capture.total)


def of_ended(execution: "Execution", name: str, offset: int, limit: int) -> Dict[str, Any]:
    """From the result, whose kept output is all of it, or first and last half of the limit."""
    result = execution.result
    assert result is not None
    total: int = result[name + "_bytes"]
    if execution.forgotten or offset >= total:
        return _told(total, b"", total)
    kept: bytes = result[name]
    most = execution.request.output_limit
    if total > most:
        head = most // 2
        if offset < head:
            return _told(offset, kept[offset : min(head, offset + limit)], total)
        start = max(offset, total - (most - head))
        kept = kept[len(kept) - (most - head) :]
        return _told(start, kept[start - (total - len(kept)) :][:limit], total)
    return _told(offset, kept[offset : offset + limit], total)


def whole(result: Dict[str, Any], spill: "Optional[Spill]", name: str, offset: int) -> Iterator[bytes]:
    """All of one stream of an ended execution, from `offset` on. Raises Refused: it was dropped."""
    pieces = spill.read(offset) if spill is not None else None
    if pieces is not None:
        return pieces
    if spill is not None or len(result[name]) != result[name + "_bytes"]:
        raise Refused(404, "not_found", "this output was dropped to make place for later ones")
    return iter([result[name][offset:]] if offset < len(result[name]) else [])


def _told(start: int, data: bytes, total: int) -> Dict[str, Any]:
    return {"offset": start, "data": base64.b64encode(data).decode("ascii"), "total": total}
