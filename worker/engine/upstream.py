"""The names of mlx-lm that are used here, and what is assumed of its unannotated objects.

Importing mlx_lm has an effect: it sets this process's limit of open files to (2048, 4096), the hard
limit included, which nobody but root can raise again, and it fails where the hard limit is lower
already. So it is imported in worker processes only, and here, with `setrlimit` out of its reach.
"""
# pyright: reportUnknownVariableType=false

import resource
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Any, Protocol, cast

import mlx.core as mx
from mlx.utils import tree_flatten


def _ignore(*_: object) -> None:
    """Stands in for setrlimit."""


@contextmanager
def _open_file_limit_kept() -> Generator[None]:
    original = resource.setrlimit
    resource.setrlimit = _ignore
    try:
        yield
    finally:
        resource.setrlimit = original


with _open_file_limit_kept():
    from mlx_lm import utils as _utils
    from mlx_lm.generate import BatchGenerator, PromptProcessingBatch

load_model: Callable[..., Any] = _utils.load_model
load_tokenizer: Callable[..., Any] = _utils.load_tokenizer
dequantize_model: Callable[[Any], Any] = _utils.dequantize_model
flatten_tree: Callable[[Any], list[tuple[str, mx.array]]] = cast("Any", tree_flatten)


class LanguageModel(Protocol):
    """A causal model of mlx-lm (an `mlx.nn.Module`)."""

    def __call__(self, inputs: mx.array, cache: list[Any]) -> mx.array:
        """Logits [n, length, vocabulary]; feeds the inputs to the cache."""
        ...

    def set_dtype(self, dtype: mx.Dtype) -> None:
        """Convert the floating-point parameters, lazily."""
        ...

    def parameters(self) -> dict[str, Any]:
        """The tree of arrays."""
        ...

    def eval(self) -> "LanguageModel":
        """Leave training mode."""
        ...


class Tokenizer(Protocol):
    """A tokenizer of transformers in mlx-lm's wrapper."""

    has_chat_template: bool
    chat_template: str | None
    eos_token_ids: set[int]
    all_special_ids: list[int]
    bos_token: str | None

    def apply_chat_template(self, conversation: list[dict[str, str]], **options: Any) -> Any:
        """The rendered conversation, as text with ``tokenize=False``, else as token ids."""
        ...

    def encode(self, text: str, **options: Any) -> list[int]:
        """Token ids of a text."""
        ...

    def decode(self, token_ids: list[int], **options: Any) -> str:
        """Text of token ids."""
        ...

    def __len__(self) -> int:
        """Size of the vocabulary, added tokens included."""
        ...


__all__ = [
    "BatchGenerator",
    "LanguageModel",
    "PromptProcessingBatch",
    "Tokenizer",
    "dequantize_model",
    "flatten_tree",
    "load_model",
    "load_tokenizer",
]
