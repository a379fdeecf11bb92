"""A program outside Temporal reads a running command's output as it comes."""

import pytest
from fixtures.stack import Site

from emberpool.pool.model.command import CommandResult, Outcome
from emberpool.pool.model.stream import Cursor, rest_of
from emberpool.worker.remote.session import RemoteSandbox


async def test_pieces_come_while_it_runs_and_make_the_whole(site: Site) -> None:
    """The first piece comes before the command can end; all of them are its output; the end has its status.

    Reading again from a cursor, by another handle, after the end, gives the rest.
    """
    async with RemoteSandbox.open(site.client, profile="py", caller="ann", task_queue=site.queue) as sandbox:
        command = await sandbox.start("echo one; until [ -e go ]; do sleep 0.05; done; seq 2000; exit 7")
        data, codes = b"", list[int | None]()
        async for piece in command.stream():
            if not codes:
                await sandbox.write_file("go", "")
            data += piece.stdout.data
            codes.append(piece.exit_code)
        assert data == b"one\n" + b"".join(b"%d\n" % number for number in range(1, 2001))
        assert codes[0] is None and codes[-1] == 7
        other = RemoteSandbox.attach(site.client, sandbox.session_id, task_queue=site.queue)
        late = [seen async for seen in other.command(command.execution_id).stream(Cursor(stdout=4))]
        assert b"".join(seen.stdout.data for seen in late) == data[4:]


@pytest.mark.parametrize("limit", [0, 1, 100, 5000, 9999, 10000])
def test_a_result_goes_on_where_reading_ended(limit: int) -> None:
    """Of a result with the middle left out every kept byte is found at its place, and the gap is told once."""
    whole = bytes(range(256)) * 40
    total, head = len(whole), limit // 2
    left_out = total - limit
    kept = whole[:head] + b"\n[... %d bytes left out ...]\n" % left_out + whole[total - (limit - head) :]
    result = CommandResult(outcome=Outcome.EXITED, exit_code=0, stdout=kept, stdout_bytes=total)
    for begin in (0, head, head + 10, total - 3, total):
        at, read, missed = Cursor(stdout=begin), 0, 0
        while True:
            piece = rest_of(result, at).stdout
            assert piece.data == whole[piece.offset : piece.end]
            read, missed = read + len(piece.data), missed + piece.missed
            if rest_of(result, at).complete:
                break
            at = Cursor(stdout=piece.end)
        assert begin + read + missed == total
