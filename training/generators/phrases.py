"""Phrases around a request, and talk that asks for nothing; what stands after the `|` is held out from training."""


def split(text):
    """(phrasings for training, held-out phrasings): separated by ";", the two sides by "|"."""
    sides = [[" ".join(phrase.split()) for phrase in side.split(";")] for side in (text or "").split("|")]
    sides = [[phrase for phrase in side if phrase] for side in sides]
    return ([*sides, [], []])[:2]


PRE = split("""please; could you; can you; hey,; ok,; would you please; i'd like you to; would you; can you please; hi,; now;
    go ahead and; listen,; computer, | do me a favour and; be so kind and""")
POST = split("; ; ; please; thanks; now; for me; right now; , please; if you can | whenever you can; cheers")
JOIN = split("and; , then; and then; and also; , and; then; ; plus | as well as; and after that")
NEGATE = split("""don't; do not; please don't; never; please do not; you must not; i don't want you to; no need to; don't you dare;
    it is not necessary to; you don't have to; stop, don't | refrain from trying to; by no means""")
CHAT = split("""hello; hello {name}; hi there; good morning; good evening {name}; how are you?; how are you today?; who are you?; thanks;
    thanks a lot; thank you {name}; what can you do?; tell me a joke; tell me a joke about a {noun}; tell me a story about a {adj} {noun};
    write a poem about the {noun}; what is the capital of {city}?; why is the {noun} {adj}?; how do i {verb} a {noun}?;
    what is a {noun}?; who invented the {noun}?; explain the {noun} to me; what is {n} plus {m}?; what is {n} times {m}?;
    i like the {noun}; my {noun} is {adj}; do you like {noun}s?; translate {noun} into french; how old is the {noun}?;
    what does {word} mean?; spell {word}; i am {adj} today; that was {adj}; never mind; nothing; you are {adj}; goodbye; see you later;
    i think the {noun} is too {adj}; the {noun} is {adj} today; summarize the {noun} for me; is a {noun} {adj}?; tell me about {city};
    what is the meaning of life?; who is {name}?; have you seen my {noun}?; compare a {noun} with a {noun}; recommend a good {noun};
    how many {noun}s are there in {city}?; what time is it?; correct this sentence: the {noun} {verb} {adj}; why?; ok; yes; no
    | could we talk about the {noun}?; what do you think of {city}?; give me advice about my {noun}; how far away is {city}?;
    define {word}; which {noun} is the best one?; i feel {adj}; sing something about {noun}s""")
REMARKS = split("""i turned {on} the {room} light yesterday; the {room} lights are {on}; yesterday i played {query}; {contact} called me;
    i talked to {contact} about the weather in {city}; the {door} is broken; i was in {city} {day}; the {room} is too {adj};
    my timer was {minutes} minutes; i already bought {item}; who lives in the {room}?; why are the {room} lights {on}?;
    what is in the {room}?; {item} is expensive; the alarm rang at {time}; i hate {query}; did {contact} call?;
    is there any {item} left?; how loud is it?; what song is this?; when does my timer end?; what is on my calendar {day}?
    | {contact} said the {room} light was {on}; i used to live in {city}; the fan in the {room} is noisy""")
SYSTEMS = [
    "You are a home assistant.",
    "You are a helpful assistant.",
    "Use the tools when they fit.",
    "Answer briefly.",
    "You control a smart home.",
    "Call a tool or do nothing.",
]
