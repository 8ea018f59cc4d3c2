"""What the wording of a request says against acting on it: a negation, a question about a state, a condition.

Rules over English wording, with the safest forms of a few other languages. They look for reasons *not* to act; a
sentence that trips one wrongly costs an upstream call, a missed one costs a wrong action.
"""

from __future__ import annotations

import re

_CAMEL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")

_NEGATION = re.compile(
    r"\b(?:do|does|did|must|should|shall|would|could|can|may|need|is|are)\s+not\b|\b(?:do|does|must|should|need)n['\u2019]?t\b"
    r"|\bcannot\b|\bnever\b|\bnot\b|\bunder no circumstances\b|\bno need (?:to|for)\b|\bno longer\b|\bnevermind\b"
    r"|\bnever mind\b|\bforget (?:it|about it|that)\b|\bcancel that\b|\bleave\b.{1,60}\b(?:alone|as (?:it|they) (?:is|are))\b"
    r"|\brefrain from\b|\bavoid\b|\bwithout\b|\bexcept\b|\binstead of\b|\brather than\b|\banything but\b"
    r"|\b(?:nicht|niemals|keinesfalls|auf keinen fall)\b|\bn(?:e|['\u2019])\s?\w+\s+(?:pas|jamais|plus)\b"
    r"|^\s*(?:no|kein(?:e|en)?)\s+(?!problem|worries|rush|hurry|doubt|matter|thanks|thank)\w",
    re.IGNORECASE,
)
#: Wordings with a negative word that ask for the thing all the same.
_NOT_A_NEGATION = re.compile(
    r"\b(?:do not|don['\u2019]?t) (?:forget|hesitate|worry|mind|wait)\b(?: to)?"
    r"|\bif you (?:do not|don['\u2019]?t|would not|wouldn['\u2019]?t) mind\b|\bwhy (?:don['\u2019]?t you|not)\b"
    r"|\b(?:whether|if) or not\b|\bor not\b|\bif not\b|\bnot only\b|\bwon['\u2019]?t you\b|\bcan(?:not|['\u2019]?t) you\b",
    re.IGNORECASE,
)

_OPENING = re.compile(
    r"^\W*(?:(?:hi|hey|hello|ok|okay|so|well|um|uh|please|now|and|then|also|good (?:morning|evening|afternoon)|computer)\b"
    r"[\s,.!:-]*)*",
    re.IGNORECASE,
)
_REQUEST = re.compile(
    r"^(?:can|could|will|would|won['\u2019]?t|can['\u2019]?t)\s+(?:you|u|we|i)\b|^(?:may|might) i\b|^would you mind\b"
    r"|^how about\b|^why (?:don['\u2019]?t you|not)\b|^do me a favou?r\b|^is it possible (?:to|for you)\b|^would it be possible\b"
    r"|^(?:i want|i need|i['\u2019]d like|let['\u2019]?s|have|make|get)\b",
    re.IGNORECASE,
)
_QUESTION = re.compile(
    r"^(?:is|are|am|was|were|isn['\u2019]?t|aren['\u2019]?t|wasn['\u2019]?t|does|doesn['\u2019]?t|did|didn['\u2019]?t|has|hasn['\u2019]?t"
    r"|do (?:i|we|you|they|the|my|any)|have (?:i|we|you|they)|what|what['\u2019]?s|whats|which|who|whose|who['\u2019]?s|when"
    r"|where|where['\u2019]?s|why|how|how['\u2019]?s|should|shall|can (?:it|the|this|that)|will (?:it|the|this|that))\b",
    re.IGNORECASE,
)
_CONDITION = re.compile(
    r"\b(?:if|unless|until|whenever|as soon as|as long as|in case|provided that|when|once|before|after|while)\b",
    re.IGNORECASE,
)
_NOT_A_CONDITION = re.compile(
    r"\bif (?:you (?:can|could|would|will|please|don['\u2019]?t mind|do not mind|wouldn['\u2019]?t mind)|possible|so)\b"
    r"|\b(?:see|check|find out|know|tell me|ask|wonder|wondering) (?:if|when)\b|\bonce (?:more|again)\b|\bat once\b"
    r"|\bafter (?:all|that)\b|\bas if\b|\b(?:when|whenever|as soon as|once) you(?: can| get a (?:chance|moment|minute)| have (?:time|a (?:chance|moment|minute)))\b",
    re.IGNORECASE,
)

#: A question inside a sentence ("tell me if the lamp is on"), or what somebody else said: nothing to act on.
_REPORT = re.compile(
    r"^(?:(?:can|could|would|will) you )?(?:please )?(?:tell (?:me|us)|let (?:me|us) know|check|see|find out|do you know|i wonder"
    r"|i['\u2019]?d like to know|i (?:want|need) to know) (?:if|whether|what|which|who|where|how|why)\b"
    r"|^(?!i\b|you\b)\w+ (?:said|says|told (?:me|us))\b",
    re.IGNORECASE,
)

#: First words of tool names and descriptions that change the world rather than look at it.
ACTIONS = frozenset(
    """set turn switch stop start open close delete remove send create add update cancel book play pause resume
    skip lock unlock dim brighten enable disable order buy pay transfer post write save make move increase
    decrease raise lower toggle schedule remind mute unmute record begin end activate deactivate arm disarm put
    place reserve change adjust edit rename reset restart reboot shut shutdown call dial text email message mail
    share upload publish submit insert drop kill run execute install launch trigger block unblock approve reject
    sign reply forward archive empty clear mark heat cool warm charge eject clean vacuum feed water refill
    snooze dismiss log register subscribe unsubscribe invite assign complete control pick drive boost hang ring
    sound flash focus zoom capture take""".split()
)


def negated(text: str) -> bool:
    """Whether the text says not to do something."""
    return _NEGATION.search(_NOT_A_NEGATION.sub(" ", text)) is not None


def conditional(text: str) -> bool:
    """Whether the wish hangs on a condition or a moment that is not now."""
    return _CONDITION.search(_NOT_A_CONDITION.sub(" ", text)) is not None


def asks(text: str) -> bool:
    """Whether the text is a question rather than a request put as one ("can you ...?")."""
    plain = _OPENING.sub("", text, count=1).strip()
    if _REPORT.match(plain):
        return True
    if _REQUEST.match(plain):
        return False
    if _QUESTION.match(plain):
        return True
    return plain.endswith("?") and first_word(plain) not in ACTIONS


def first_word(text: str) -> str:
    """The first word of a text or of a name such as `device.setPower` or `set_lights`, in lower case."""
    return next(iter(name_words(text)), "")


def name_words(name: str) -> list[str]:
    """The words of a name or text, in lower case, cut at signs and at camel case."""
    return [word for word in re.split(r"[\W_]+", _CAMEL.sub("_", name).casefold()) if word]


def acts(name: str, description: str) -> bool:
    """Whether a tool changes something, as far as its name and the first word of its description tell."""
    return any(word in ACTIONS for word in name_words(name)[:3]) or first_word(description) in ACTIONS
