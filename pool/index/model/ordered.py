"""Members in the order of a score, as the index's sorted sets are: equal scores by name."""

from bisect import bisect_left, insort
from collections.abc import Iterator


class Ordered:
    """A set of names, each with a whole number. Finding is O(log n); adding moves memory, which is fast enough."""

    def __init__(self) -> None:
        self._scores: dict[str, int] = {}
        self._order: list[tuple[int, str]] = []

    def __len__(self) -> int:
        return len(self._order)

    def __contains__(self, name: str) -> bool:
        return name in self._scores

    def __iter__(self) -> Iterator[str]:
        return (name for _, name in self._order)

    def add(self, name: str, score: int) -> None:
        """Put in, or give another score."""
        self.discard(name)
        self._scores[name] = score
        insort(self._order, (score, name))

    def discard(self, name: str) -> None:
        """Take out, if it is in."""
        score = self._scores.pop(name, None)
        if score is not None:
            del self._order[bisect_left(self._order, (score, name))]

    def score(self, name: str) -> int | None:
        """The score of a member."""
        return self._scores.get(name)

    def scores(self) -> dict[str, int]:
        """Every member with its score."""
        return dict(self._scores)

    def first(self) -> str | None:
        """The member with the lowest score."""
        return self._order[0][1] if self._order else None

    def last(self) -> str | None:
        """The member with the highest score."""
        return self._order[-1][1] if self._order else None

    def lowest(self) -> int | None:
        """The lowest score."""
        return self._order[0][0] if self._order else None

    def head(self, limit: int) -> list[str]:
        """Up to `limit` members, lowest first."""
        return [name for _, name in self._order[:limit]]

    def up_to(self, score: int, limit: int) -> list[str]:
        """Up to `limit` members with at most this score, lowest first."""
        found: list[str] = []
        for own, name in self._order:
            if own > score or len(found) >= limit:
                break
            found.append(name)
        return found
