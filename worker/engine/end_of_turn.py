"""The marker that ends an assistant's turn, learnt by rendering the chat template.

Some models end turns with a marker that is not their end-of-sequence token. Without it as a stop
they show the marker and go on talking to themselves. A wrong marker is worse than none: whatever
is not certain is refused.
"""

from collections.abc import Callable, Sequence
from typing import Final

_USER_1: Final = "QuestionOne"
_USER_2: Final = "QuestionTwo"
_ANSWERS: Final = ("Reply", "SomewhatLongerReply")
_MARKER_CHARS_MAX: Final = 64

Turn = dict[str, str]
Render = Callable[[Sequence[Turn]], str]


def learn_end_of_turn(render: Render, bos: str | None) -> str | None:
    """What the template prints after an assistant's answer; None when that is not certain.

    The assistant's message is never the last one, since templates that take it for the beginning
    of an answer print no end. Two answers of different length must give the same marker.

    Args:
        render: the template without generation prompt; raises ValueError when it refuses.
        bos: what a rendering may begin with.
    """
    try:
        markers = {_end_of_turn(render, bos, answer) for answer in _ANSWERS}
    except ValueError:
        return None
    marker = markers.pop()
    if markers or not marker.strip() or len(marker) > _MARKER_CHARS_MAX:
        return None
    if any(probe in marker for probe in (_USER_1, _USER_2, *_ANSWERS)):
        return None
    return marker


def _end_of_turn(render: Render, bos: str | None, answer: str) -> str:
    first = {"role": "user", "content": _USER_1}
    last = {"role": "user", "content": _USER_2}
    closed = render([first, {"role": "assistant", "content": answer}, last])
    gap = _between(closed, answer, _USER_2)
    before, found, after = render([first]).partition(_USER_1)
    if not found:
        raise ValueError("the template drops the user's message")
    # What ends the user's turn too is alone right where a default system turn ends the same way.
    if after.strip() and gap.startswith(after.strip()):
        return after.strip()
    opener = before.removeprefix(bos or "")
    if opener and gap.endswith(opener) and gap.removesuffix(opener).strip():
        return gap.removesuffix(opener).strip()
    return gap.rstrip()


def _between(text: str, left: str, right: str) -> str:
    _, found_left, rest = text.partition(left)
    gap, found_right, _ = rest.partition(right)
    if not (found_left and found_right):
        raise ValueError("the template drops a message")
    return gap
