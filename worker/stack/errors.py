"""What goes wrong while a stack starts, told so that a person can act on it."""


class StackError(Exception):
    """A part of the embedded stack cannot start or has ended.

    Raised by worker/stack/, caught by the command line, which prints it without a traceback. Not retried.
    """

    def __init__(self, part: str, cause: str, remedy: str = "", log_tail: str = "") -> None:
        super().__init__(f"{part}: {cause}")
        self.part, self.cause, self.remedy, self.log_tail = part, cause, remedy, log_tail
