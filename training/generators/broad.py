"""The broad generator: 23 intents, one to five tools, unseen words, negation, questions about a state, refusals.

An example is `{"query", "tools", "answers", "kind"[, "system"]}`: `tools` are flat declarations in random order,
`answers` the expected calls in spoken order, [] for none. The same seed draws the same examples.
"""

import random
import re

from training.generators.declared import Declared
from training.generators.intents import ACTIONS, CONFLICT, GETTERS, IMPERATIVE, INTENTS
from training.generators.phrases import CHAT, JOIN, NEGATE, POST, PRE, REMARKS, SYSTEMS
from training.generators.slots import Slots
from training.generators.words import ADJS, NOUNS, VERBS

WEEKDAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
#: Kind of request -> its share in the mix.
SHARES = {
    "single": 0.54,
    "double": 0.10,
    "spread": 0.01,
    "chat": 0.06,
    "remark": 0.03,
    "unserved": 0.12,
    "negation": 0.06,
    "state": 0.04,
    "missing": 0.04,
}


class Generator:
    """Draws examples; `split` is train, slots (unseen words) or templates (unseen phrasings)."""

    SPLITS = ("train", "slots", "templates")
    KINDS = tuple(SHARES)

    def __init__(self, seed, split="train"):
        self.r = random.Random(seed)
        self.split = split
        self.slots = Slots(self.r, unseen=split == "slots")
        self.ti = 1 if split == "templates" else 0

    # -- pieces
    def _pick(self, pair):
        return self.r.choice(pair[self.ti] or pair[0])

    def _value(self, intent, key, tool):
        kind = INTENTS[intent]["params"][key][0]
        kind, _, rest = kind.partition(":")
        if tool and key in tool.params:
            closed = tool.enum_values(key)
            if closed and self.r.random() < 0.85:
                v = self.r.choice(closed)
                return v, v
        if kind == "int":
            return self.slots.number(*map(int, rest.split(":")))
        if kind in ("flag", "enum"):
            v = self.r.choice(rest.replace(":", ",").split(","))
            return v, v
        v = getattr(self.slots, rest)()
        return v, v

    def _fill(self, template, intent, tool):
        """Template -> (sentence, values). An optional argument the tool lacks is not said."""
        values, out, rest = {}, [], template
        while "{" in rest:
            head, _, tail = rest.partition("{")
            field, _, rest = tail.partition("}")
            key, opt, lead = field.partition("?")
            out.append(head)
            if opt and (self.r.random() < 0.5 or (tool and key not in tool.params)):
                continue
            spoken, values[key] = self._value(intent, key, tool)
            out.append((lead if opt else "") + spoken)
        return "".join(out) + rest, values

    def _usable(self, template, tool):
        keys = [f.split("}")[0] for f in template.split("{")[1:]]
        return all("?" in k or k in tool.params for k in keys)

    def _say(self, intent, tool, which="say"):
        spec = INTENTS[intent]
        options = [t for t in (spec[which][self.ti] or spec[which][0]) if tool is None or self._usable(t, tool)]
        options = options or [t for t in spec[which][0] if tool is None or self._usable(t, tool)]
        return self._fill(self.r.choice(options), intent, tool)

    def _polite(self, s):
        if s.endswith("?") or self.r.random() < 0.5:
            return s
        k = self.r.random()
        if k < 0.6:
            pre = self._pick(PRE)
            return (pre if s.split()[0] in IMPERATIVE else "please") + " " + s
        post = self._pick(POST)
        return s + post if post.startswith(",") else (s + " " + post).strip()

    def _finish(self, s):
        r = self.r
        s = re.sub(r"\bthe (\w+'s )", r"\1", " ".join(s.replace(" ,", ",").split()))
        if r.random() < 0.3:
            s = s[0].upper() + s[1:]
        if s[-1] not in ".?!" and r.random() < 0.2:
            s += r.choice((".", "!", "."))
        elif s.endswith("?") and r.random() < 0.4:
            s = s[:-1]
        return s

    # -- whole examples
    def _tools(self, intents):
        return [Declared(self.r, i, self.slots) for i in intents]

    def _others(self, n, avoid, like=None):
        pool = [i for i in INTENTS if i not in avoid]
        self.r.shuffle(pool)
        if like:  # near misses first: they share a slot
            keys = set(INTENTS[like]["params"])
            pool.sort(key=lambda i: -(len(keys & set(INTENTS[i]["params"])) + self.r.random() * 1.5))
        return pool[:n]

    def _n_tools(self):
        return self.r.choices((1, 2, 3, 4, 5), (0.24, 0.28, 0.24, 0.14, 0.10))[0]

    def single(self, intent=None):
        intent = intent or self.r.choice(list(INTENTS))
        tools = self._tools([intent])
        q, values = self._say(intent, tools[0])
        call = tools[0].call(values)
        q = self._polite(q)
        return q, tools, [call] if call else [], intent

    def double(self):
        r = self.r
        a = r.choice(ACTIONS)
        b = r.choice(ACTIONS)
        tools = self._tools([a] if a == b else [a, b])
        (qa, va), (qb, vb) = self._say(a, tools[0]), self._say(b, tools[-1])
        calls = [tools[0].call(va), tools[-1].call(vb)]
        join = self._pick(JOIN)
        q = qa.rstrip("?") + (join if join.startswith(",") else " " + join) + " " + qb
        return self._polite(q), tools, [c for c in calls if c], "two"

    def spread(self):
        """One verb, two rooms: two calls of the same tool."""
        tools = self._tools(["light"])
        on = self.r.choice(("on", "off"))
        a, b = (self._value("light", "room", tools[0])[1] for _ in range(2))
        q = self.r.choice(
            (
                f"turn {on} the {a} and {b} lights",
                f"turn the lights {on} in the {a} and the {b}",
                f"switch {on} the lights in the {a} and {b}",
            )
        )
        calls = [tools[0].call({"room": x, "on": on}) for x in (a, b)]
        return self._polite(q), tools, [c for c in calls if c], "two"

    def chat(self):
        r, s = self.r, self.slots
        t = self._pick(CHAT)
        for key, fn in (
            ("name", s.contact),
            ("noun", lambda: s.pick(NOUNS)),
            ("adj", lambda: s.pick(ADJS)),
            ("verb", lambda: s.pick(VERBS)),
            ("city", s.city),
            ("word", s.fresh),
            ("n", lambda: str(r.randint(1, 99))),
            ("m", lambda: str(r.randint(1, 99))),
        ):
            while "{" + key + "}" in t:
                t = t.replace("{" + key + "}", fn(), 1)
        return t, [], [], "chat"

    def remark(self):
        s, t = self.slots, self._pick(REMARKS)
        for key, fn in (
            ("on", lambda: self.r.choice(("on", "off"))),
            ("room", s.room),
            ("query", s.music),
            ("contact", s.contact),
            ("city", s.city),
            ("door", s.door),
            ("day", s.day),
            ("item", s.item),
            ("time", s.time),
            ("adj", lambda: s.pick(ADJS)),
            ("minutes", lambda: str(self.r.randint(1, 90))),
        ):
            while "{" + key + "}" in t:
                t = t.replace("{" + key + "}", fn(), 1)
        like = "light" if "light" in t else None
        return t, self._tools(["light"]) if like else [], [], "remark"

    def unserved(self):
        intent = self.r.choice(list(INTENTS))
        q, _ = self._say(intent, None)
        close = self._others(self._n_tools(), {intent, *CONFLICT.get(intent, ())}, like=intent)
        return self._polite(q), self._tools(close), [], "unserved"

    def negation(self):
        intent = self.r.choice(ACTIONS)
        tools = self._tools([intent])
        options = [t for t in INTENTS[intent]["say"][0] if t.split()[0] in IMPERATIVE and self._usable(t, tools[0])]
        if not options:
            return self.negation()
        q, _values = self._fill(self.r.choice(options), intent, tools[0])
        q = self._pick(NEGATE) + " " + q
        if self.r.random() < 0.25:  # "don't do X, do Y instead"
            other = self.r.choice([i for i in ACTIONS if i != intent])
            t2 = self._tools([other])[0]
            q2, v2 = self._say(other, t2)
            call = t2.call(v2)
            return (
                q + self.r.choice((", ", ", but ", ", instead ")) + q2,
                [*tools, t2],
                [call] if call else [],
                "instead",
            )
        return q, tools, [], "negation"

    def state(self):
        """A question about a state; a call only when a getter is declared."""
        getter, setter = self.r.choice(
            (("light_state", "light"), ("light_state", "brightness"), ("temperature", "thermostat"))
        )
        if self.r.random() < 0.4:
            tools = self._tools([getter, setter])
            q, v = self._say(getter, tools[0])
            call = tools[0].call(v)
            return q, tools, [call] if call else [], "state_getter"
        q, _ = self._say(getter, None)
        return q, self._tools([setter]), [], "state"

    def missing(self):
        intent = self.r.choice([i for i in INTENTS if INTENTS[i]["missing"][0]])
        tools = self._tools([intent])
        q, _ = self._say(intent, tools[0], "missing")
        return self._polite(q), tools, [], "missing"

    def _date(self):
        """The fact that the router gives: a day, without a time."""
        r = self.r
        day = f"20{r.randint(24, 29)}-{r.randint(1, 12):02d}-{r.randint(1, 28):02d}"
        return f"date: {day} {r.choice(WEEKDAYS)}"

    def example(self, kind=None):
        """One example, of a kind where one is given."""
        r = self.r
        kind = kind or r.choices(self.KINDS, list(SHARES.values()))[0]
        q, tools, calls, label = getattr(self, kind)()
        have = {t.intent for t in tools}
        if kind != "unserved":
            want = max(self._n_tools(), len(tools), 1)
            avoid = set(have)
            for i in have:
                avoid |= set(CONFLICT.get(i, ()))
            if kind in ("state", "remark") and not any(t.intent in GETTERS for t in tools):
                avoid |= set(GETTERS)
            like = r.choice(sorted(have)) if have and r.random() < 0.6 else None
            tools = tools + self._tools(self._others(want - len(tools), avoid, like))
        names, unique = set(), []
        for t in tools:
            if t.name in names:
                return self.example(kind)
            names.add(t.name)
            unique.append(t.json)
        r.shuffle(unique)
        ex = {"query": self._finish(q), "tools": unique, "answers": calls, "kind": label}
        if r.random() < 0.12:
            ex["system"] = r.choice(SYSTEMS) if r.random() < 0.5 else self._date()
        return ex
