"""The one way in which a call says no."""


class Refused(Exception):
    """Becomes an HTTP error: `status`, and `{"error": word, "detail": detail}`."""

    def __init__(self, status: int, word: str, detail: str = "") -> None:
        super().__init__(f"{status} {word}: {detail}")
        self.status, self.word, self.detail = status, word, detail


def bad_request(field: str, problem: str) -> Refused:
    """400, naming the field."""
    return Refused(400, "bad_request", f"{field}: {problem}")
