"""A command with a terminal: the same content as without one, a window, and input like from a keyboard."""

import pytest
from fixtures.emberd import Lease, new_id

from emberpool.pool.client.following import follow, read_output
from emberpool.pool.client.processes import resize_terminal, start_process, write_stdin
from emberpool.pool.model.command import Command
from emberpool.pool.model.process import InputPiece
from emberpool.pool.model.stream import Cursor


@pytest.mark.parametrize("text", ["seq 60000", "seq 3000; exec seq 3001 6000", "python3 -c 'print(\"x\" * 100000)'"])
async def test_the_content_is_that_without_a_terminal(lease: Lease, text: str) -> None:
    """Also the last bytes before an exit at once (modal-labs/libmodal#245)."""
    plain = await lease.sh(text, output_limit=700_000)
    for _ in range(3):
        shown = await lease.sh(text, output_limit=700_000, tty=True)
        assert shown.stdout.replace(b"\r\n", b"\n") == plain.stdout
        assert (shown.exit_code, shown.stderr) == (0, b"")


async def test_it_is_a_terminal_of_the_given_size(lease: Lease) -> None:
    """All three streams are the terminal, which controls the command's session; the size is what was asked for."""
    text = "test -t 0 && test -t 1 && test -t 2 && stty size && stty size < /dev/tty; echo err >&2"
    result = await lease.sh(text, tty=True, tty_rows=33, tty_cols=111)
    assert result.stdout == b"33 111\r\n33 111\r\nerr\r\n"


async def test_it_is_typed_into_resized_and_closed(lease: Lease) -> None:
    """Input is echoed and read, a new size is seen, end of input is read as such."""
    execution = new_id()
    text = "echo up; while read -r x; do echo got $x; stty size; done; echo closed"
    await start_process(lease.client, lease.pod, lease.proof, execution, Command(shell=text, tty=True), stdin_open=True)
    seen = await read_output(lease.client, lease.pod, lease.proof, execution, Cursor(), wait_s=5)
    assert seen.stdout.data == b"up\r\n"
    assert await resize_terminal(lease.client, lease.pod, lease.proof, execution, 50, 100)
    for piece in (InputPiece(data=b"a\n"), InputPiece(offset=2, end=True)):
        await write_stdin(lease.client, lease.pod, lease.proof, execution, piece)
    rest = b"".join(
        [seen.stdout.data async for seen in follow(lease.client, lease.pod, lease.proof, execution, seen.cursor)]
    )
    assert sorted(rest.split()) == sorted(b"50 100 a got a closed".split())


async def test_keys_interrupt_the_command_only(lease: Lease) -> None:
    """Ctrl-C ends the command by SIGINT; its end is known all the same."""
    execution = new_id()
    command = Command(shell="echo up; exec sleep 4591", tty=True)
    await start_process(lease.client, lease.pod, lease.proof, execution, command, stdin_open=True)
    await anext(follow(lease.client, lease.pod, lease.proof, execution))
    await write_stdin(lease.client, lease.pod, lease.proof, execution, InputPiece(data=b"\x03"))
    last = [seen async for seen in follow(lease.client, lease.pod, lease.proof, execution)][-1]
    assert last.signal == 2 and not last.survivors
