"""What gates' models say: what they were shown, again, and nothing else; or the proposals of a fixture's turn."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from typing import Any, Final

from a3s_actors.agent import ModelRequest, Role
from a3s_actors.memory.lexical import tokens
from a3s_actors.testing import proposals_reply

__all__ = ["answer", "proposals_of", "shown_items"]

_FRAME: Final = re.compile(r"<recalled-context>.*?</recalled-context>", re.DOTALL)
_NEARLY: Final = 0.6
"""What part of the best item's shared words another one needs to be said, too."""
_NOTHING: Final = "I do not know."


def _last_prompt(request: ModelRequest) -> str:
    return next(each.content for each in reversed(request.messages) if each.role is Role.USER)


def shown_items(request: ModelRequest) -> dict[str, str]:
    """Return id and text of what was recalled for a request's last prompt, as it stands in the frame."""
    found = _FRAME.search(_last_prompt(request))
    if found is None:
        return {}
    # The frame is the engine's, made of escaped texts; nothing of it comes from a network.
    root = ET.fromstring(found[0])  # noqa: S314
    return {each.attrib["id"]: each.text or "" for each in root.findall("item")}


def answer(request: ModelRequest) -> str:
    """Answer with the recalled items that share most words with the question; without any, say so."""
    question = set(tokens(_FRAME.sub("", _last_prompt(request))))
    shared = {text: len(question & set(tokens(text))) for text in shown_items(request).values()}
    best = max(shared.values(), default=0)
    said = [text for text, count in shared.items() if count and count >= _NEARLY * best]
    return " ".join(said) or _NOTHING


def proposals_of(turn: dict[str, Any]) -> str:
    """Return an extraction's answer with the proposals of a fixture's turn; their labels stay here."""
    return proposals_reply(
        *({name: value for name, value in each.items() if name != "keep"} for each in turn["proposals"])
    )
