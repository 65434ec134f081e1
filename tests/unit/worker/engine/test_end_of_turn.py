"""The end of a turn is learnt from what a template prints, or not at all."""

from collections.abc import Callable, Sequence

import pytest

from worker.engine.end_of_turn import Turn, learn_end_of_turn

Template = Callable[[Sequence[Turn]], str]


def wrapped(opener: str, closer: str, before: str = "") -> Template:
    def render(turns: Sequence[Turn]) -> str:
        parts = [f"{opener.format(turn['role'])}{turn['content']}{closer}" for turn in turns]
        return before + "".join(parts)

    return render


def mistral(turns: Sequence[Turn]) -> str:
    return "<s>" + "".join(
        f"[INST] {turn['content']} [/INST]" if turn["role"] == "user" else f"{turn['content']}</s>"
        for turn in turns
    )


def zephyr(turns: Sequence[Turn]) -> str:
    return "".join(f"<|{turn['role']}|>\n{turn['content']}</s>\n" for turn in turns)


def plain(turns: Sequence[Turn]) -> str:
    return "".join(f"{turn['role']}: {turn['content']}\n" for turn in turns)


def counting(turns: Sequence[Turn]) -> str:
    return "".join(f"<t>{turn['content']}<{len(turn['content'])}>" for turn in turns)


def forgetful(turns: Sequence[Turn]) -> str:
    return "".join(turn["content"] for turn in turns if turn["role"] == "user")


def refusing(turns: Sequence[Turn]) -> str:
    raise ValueError("conversation roles must alternate")


def long_winded(turns: Sequence[Turn]) -> str:
    return ("=" * 70).join(turn["content"] for turn in turns)


@pytest.mark.parametrize(
    ("template", "marker"),
    [
        (wrapped("<|im_start|>{}\n", "<|im_end|>\n"), "<|im_end|>"),
        (wrapped("<start_of_turn>{}\n", "<end_of_turn>\n", "<bos>"), "<end_of_turn>"),
        (
            wrapped("<|{}|>\n\n", "<|eot_id|>", "<bos><|system|>\n\nToday is…<|eot_id|>"),
            "<|eot_id|>",
        ),
        (mistral, "</s>"),
        (zephyr, "</s>"),
        (plain, "\nuser:"),
    ],
    ids=["chatml", "gemma", "llama-3", "mistral", "zephyr", "plain"],
)
def test_known_families_give_their_marker(template: Template, marker: str) -> None:
    assert learn_end_of_turn(template, "<s>" if template is mistral else "<bos>") == marker


@pytest.mark.parametrize("template", [counting, forgetful, refusing, long_winded])
def test_what_is_not_certain_gives_none(template: Template) -> None:
    assert learn_end_of_turn(template, None) is None
