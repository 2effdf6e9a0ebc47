"""Context assembly: many providers' items become one bounded, ranked list. Pure; no clock, no I/O.

Ranked by relevance, priority, trust, freshness and then id. The same id, and the same normalised content, enters once:
a durable memory wins over everything else.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from typing import Final, Protocol

import attrs

from a3s_actors.agent.framing import render_item
from a3s_actors.memory._checks import check_text, check_whole
from a3s_actors.memory.errors import InvalidInput
from a3s_actors.memory.timestamps import Timestamp
from a3s_actors.recall.admission import DURABLE_SOURCE, DurableContextItem

__all__ = [
    "AssembledContext",
    "ContextItem",
    "ContextPolicy",
    "ContextProvider",
    "ContextRequest",
    "assemble",
    "count_tokens",
    "normalised",
]

_MISSES: Final = 64
_LONG_AGO: Final = -(1 << 100)


def _unit(field: str) -> Callable[[object, object, object], None]:
    def validate(_instance: object, _attribute: object, value: object) -> None:
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0.0 <= value <= 1.0:
            raise InvalidInput(field, "must be a finite number from 0 to 1")

    return validate


def _whole(field: str, minimum: int) -> Callable[[object, object, object], None]:
    def validate(_instance: object, _attribute: object, value: object) -> None:
        check_whole(field, value, minimum)

    return validate


@attrs.frozen(kw_only=True)
class ContextItem:
    """One piece of context that a provider offers.

    Args:
        id: the provider's name of it, at most 512 bytes; the same id enters a context once.
        source: where it comes from, shown to the model with it; at most 256 bytes.
        content: the text: untrusted data.
        relevance: to the prompt, 0 to 1.
        priority: the host's order among equally relevant ones; more is earlier.
        trust: 0 to 1.
        updated_at: how fresh it is, or None.
        durable: the recalled memory that it is. Only the engine's own provider gives it.

    Raises:
        InvalidInput, LimitExceeded: a field is malformed or too long.
    """

    id: str
    source: str
    content: str = attrs.field(repr=False)
    relevance: float = attrs.field(default=0.5, validator=_unit("contextItem.relevance"))
    priority: int = 0
    trust: float = attrs.field(default=0.5, validator=_unit("contextItem.trust"))
    updated_at: Timestamp | None = None
    durable: DurableContextItem | None = attrs.field(default=None, repr=False)

    def __attrs_post_init__(self) -> None:
        check_text("contextItem.id", self.id, 512)
        check_text("contextItem.source", self.source, 256)
        check_text("contextItem.content", self.content, None)
        priority: object = self.priority
        if isinstance(priority, bool) or not isinstance(priority, int):
            raise InvalidInput("contextItem.priority", "must be a whole number")
        if (self.source == DURABLE_SOURCE) != (self.durable is not None):
            raise InvalidInput("contextItem.source", f"{DURABLE_SOURCE} is what recalled durable memories have")


@attrs.frozen(kw_only=True)
class ContextRequest:
    """What providers are asked.

    Attributes:
        session_id, run_id: who asks.
        prompt: what the user said.
        max_items: more are of no use.
    """

    session_id: str
    run_id: str
    prompt: str = attrs.field(repr=False)
    max_items: int


class ContextProvider(Protocol):
    """Something that knows what may be relevant. It is the host's.

    Attributes:
        name: for reports.
    """

    name: str

    async def provide(self, request: ContextRequest) -> Sequence[ContextItem]:
        """Return items for a prompt. One that fails or is late is left out of the context, and reported.

        Cancellation: hits it when the deadline of the context has passed.
        """
        ...


def count_tokens(text: str) -> int:
    """Return how many tokens a text has at most, for tokenizers of bytes; no script is undercounted.

    A third of the ASCII characters, which is what English prose and code have or less, and every byte of the others:
    a byte-level tokenizer never needs more. Inject the real counter of your model to use a budget fully.
    """
    if text.isascii():
        return -(-len(text) // 3)
    plain = sum(map(str.isascii, text))
    return -(-plain // 3) + len(text.encode("utf-8", "surrogatepass")) - plain


@attrs.frozen(kw_only=True)
class ContextPolicy:
    """How much context a turn may have.

    Args:
        max_items: 0 to 1000 items.
        max_tokens: of all items together as they are shown to the model, frame not counted; at least 0.
        max_provider_items: how many of one provider's items are looked at; the first ones.
        provider_seconds: how long providers have, all at the same time. The lexical recall of durable memory is
            not bound by it.
        token_counter: counts the tokens of a text.

    Raises:
        InvalidInput, LimitExceeded: a value is out of range.
    """

    max_items: int = 20
    max_tokens: int = attrs.field(default=4000, validator=_whole("context.maxTokens", 0))
    max_provider_items: int = attrs.field(default=10_000, validator=_whole("context.maxProviderItems", 1))
    provider_seconds: float = 2.0
    token_counter: Callable[[str], int] = attrs.field(default=count_tokens, repr=False)

    def __attrs_post_init__(self) -> None:
        check_whole("context.maxItems", self.max_items, 0, 1000)
        seconds: object = self.provider_seconds
        if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not 0 < seconds < math.inf:
            raise InvalidInput("context.providerSeconds", "must be a finite number of seconds above 0")
        if not callable(self.token_counter):
            raise InvalidInput("context.tokenCounter", "must be callable")


@attrs.frozen(kw_only=True)
class AssembledContext:
    """What may enter a context, before admission.

    Attributes:
        items: in rank order.
        tokens: what they count together.
        duplicates: how many were there already, by id or by content.
        left_out: how many did not fit.
    """

    items: tuple[ContextItem, ...] = ()
    tokens: int = 0
    duplicates: int = 0
    left_out: int = 0


def normalised(content: str) -> str:
    """Return a text as it is compared: white space collapsed, case folded."""
    return " ".join(content.split()).casefold()


def _rank(item: ContextItem) -> tuple[float, int, float, int, str]:
    fresh = _LONG_AGO if item.updated_at is None else item.updated_at.order_key
    return (-item.relevance, -item.priority, -item.trust, -fresh, item.id)


def assemble(items: Iterable[ContextItem], policy: ContextPolicy) -> AssembledContext:
    """Rank items, drop what is there twice, and keep what fits.

    An item that is too large for what is left of the budget is left out, and smaller ones after it may still enter.

    Args:
        items: of all providers, in any order; the result does not depend on it.
        policy: the bounds.

    Raises:
        InvalidInput: the token counter gave no whole number.
    """
    # Durable memories first, so that they win; then in rank order. Equal ranks are told apart by source and text.
    ranked = sorted(items, key=lambda item: (item.durable is None, _rank(item), item.source, item.content))
    ids: set[str] = set()
    texts: set[str] = set()
    unique: list[ContextItem] = []
    for item in ranked:
        if item.id in ids:
            continue
        text = normalised(item.content)
        if text in texts:
            continue
        ids.add(item.id)
        texts.add(text)
        unique.append(item)
    duplicates = len(ranked) - len(unique)
    unique.sort(key=_rank)
    chosen: list[ContextItem] = []
    used = misses = 0
    for item in unique:
        if len(chosen) == policy.max_items or misses == _MISSES:
            break
        cost = policy.token_counter(render_item(item.id, item.source, item.content, _revision(item)))
        check_whole("context.tokenCounter", cost, 0)
        if used + cost > policy.max_tokens:
            misses += 1
            continue
        used += cost
        chosen.append(item)
    return AssembledContext(items=tuple(chosen), tokens=used, duplicates=duplicates, left_out=len(unique) - len(chosen))


def _revision(item: ContextItem) -> int | None:
    return None if item.durable is None else item.durable.node_revision
