"""The picture of a pod's states: the places are chosen here, the arrows and the two notes come from the table."""

from emberpool.pool.model.state import TRANSITIONS, PodState

_S = PodState
PLACES = {
    _S.STANDBY: (90, 50),
    _S.PROMOTING: (430, 50),
    _S.SWAPPING: (430, 140),
    _S.STARTING: (90, 230),
    _S.IDLE: (260, 230),
    _S.LEASED: (620, 230),
    _S.RECYCLING: (430, 370),
    _S.DIRTY: (620, 370),
    _S.DRAINING: (620, 450),
    _S.GONE: (780, 450),
}
"""Middle of each state's box, px."""
BOX = (58, 18)
"""Half a box, px."""
BOWS = {(_S.STARTING, _S.LEASED): (330, 340)}
"""Arrows that must go around a box, with the point that pulls them."""
STYLE = (
    "text{font:14px system-ui,sans-serif;fill:#1b1b1f}"
    ".note{font-size:13px;fill:#55555f}"
    "rect.state{fill:#fff;stroke:#c2410c;stroke-width:1.6}"
    "rect.end{stroke:#8a8a94}"
    "path.move{fill:none;stroke:#4b4b55;stroke-width:1.4;marker-end:url(#tip)}"
)


def picture() -> str:
    """The SVG.

    Raises:
        KeyError: a state of the table has no place yet.
    """
    moves = [(one, other) for one in PodState for other in PodState if other in TRANSITIONS[one]]
    everywhere = all(_S.GONE in TRANSITIONS[state] for state in PodState if state is not _S.GONE)
    assert everywhere, "the note says that any state leads to gone"
    drained = [state.value for state in PodState if _S.DRAINING in TRANSITIONS[state]]
    drawn = [move for move in moves if move[1] not in (_S.DRAINING, _S.GONE) or move == (_S.DRAINING, _S.GONE)]
    lines = [
        '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 860 500" role="img" aria-label="The states of a pod">',
        f"<style>{STYLE}</style>",
        '<defs><marker id="tip" viewBox="0 0 10 10" refX="9" refY="5" markerWidth="8" markerHeight="8" orient="auto">'
        '<path d="M0 0L10 5L0 10z" fill="#4b4b55"/></marker></defs>',
        '<rect width="860" height="500" rx="8" fill="#fafafa"/>',
        *[_arrow(one, other, (other, one) in moves) for one, other in drawn],
        *[_box(state) for state in PodState],
        f'<text class="note" x="32" y="455">{", ".join(drained)}</text>',
        '<path class="move" d="M500 450L560 450"/>',
        '<text class="note" x="32" y="482">any state leads to gone when the pod vanishes</text>',
        "</svg>",
    ]
    return "\n".join(lines) + "\n"


def _box(state: PodState) -> str:
    x, y = PLACES[state]
    width, height = BOX
    kind = "state end" if state in (_S.DRAINING, _S.GONE) else "state"
    return (
        f'<rect class="{kind}" x="{x - width}" y="{y - height}" width="{2 * width}" height="{2 * height}" rx="6"/>'
        f'<text x="{x}" y="{y + 5}" text-anchor="middle">{state.value}</text>'
    )


def _arrow(one: PodState, other: PodState, both_ways: bool) -> str:
    (x1, y1), (x2, y2) = PLACES[one], PLACES[other]
    bow = BOWS.get((one, other))
    if bow is not None:
        start, end = _border((x1, y1), bow), _border((x2, y2), bow)
        return f'<path class="move" d="M{start}Q{bow[0]} {bow[1]} {end}"/>'
    length = ((x2 - x1) ** 2 + (y2 - y1) ** 2) ** 0.5
    aside = 6 if both_ways else 0
    dx, dy = round(-(y2 - y1) / length * aside), round((x2 - x1) / length * aside)
    start, end = _border((x1, y1), (x2, y2), (dx, dy)), _border((x2, y2), (x1, y1), (dx, dy))
    return f'<path class="move" d="M{start}L{end}"/>'


def _border(middle: tuple[int, int], toward: tuple[int, int], aside: tuple[int, int] = (0, 0)) -> str:
    """Where the line from a box's middle leaves the box."""
    dx, dy = toward[0] - middle[0], toward[1] - middle[1]
    width, height = BOX
    share = min(width / abs(dx) if dx else 9e9, height / abs(dy) if dy else 9e9)
    return f"{round(middle[0] + dx * share + aside[0])} {round(middle[1] + dy * share + aside[1])}"
