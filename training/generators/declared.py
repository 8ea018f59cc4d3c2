"""One declared tool: names, types and wording vary, so that the model must read the declaration."""

from training.generators.intents import INTENTS


def _style(r, name):
    k = r.random()
    if k < 0.78:
        return name
    head, *rest = name.split("_")
    if k < 0.93:
        return head + "".join(w.capitalize() for w in rest)
    return name.replace("_", r.choice(("-", ".")))


USUAL = 0.6  # how often a tool is declared with its first name, parameter names and description


class Declared:
    """The JSON that the model is shown, and how to render a call of it."""

    def __init__(self, r, intent, slots):
        spec = INTENTS[intent]
        self.intent, self.r = intent, r
        names, usual = spec["names"].split(), r.random() < USUAL
        self.name = names[0] if usual else _style(r, r.choice(names))
        if r.random() < 0.02:
            self.name = r.choice(("tool", "fn", "action", "run")) + "_" + str(r.randint(1, 99))
        self.params = {}
        props, required = {}, []
        for key, (kind, names, req) in spec["params"].items():
            name = names.split()[0] if usual else r.choice(names.split())
            while name in props:
                name = r.choice(names.split())
            if not req and r.random() < 0.4:
                continue  # this declaration has no such option
            schema, encode = self._param(kind, slots)
            if r.random() < 0.08:
                schema["description"] = key.capitalize() + r.choice(("", " to use", " of the request"))
            props[name] = schema
            self.params[key] = (name, encode, req)
            if req:
                required.append(name)
        parameters = {"type": "object", "properties": props}
        if required or r.random() < 0.5:
            parameters["required"] = required
        self.json = {
            "name": self.name,
            "description": (spec["desc"][0] if usual else r.choice(spec["desc"])) + r.choice(("", "", ".")),
            "parameters": parameters,
        }

    def _param(self, kind, slots):
        r, (kind, _, rest) = self.r, kind.partition(":")
        if kind == "int":
            lo, hi = map(int, rest.split(":"))
            extra = {"minimum": lo, "maximum": hi} if r.random() < 0.12 else {}
            return {"type": r.choice(("integer", "integer", "integer", "number")), **extra}, lambda v: v
        if kind == "flag":
            yes, no = rest.split(":")
            if r.random() < 0.6:
                return {"type": "boolean"}, lambda v: v == yes
            pair = [yes, no]
            r.shuffle(pair)
            return {"type": "string", "enum": pair}, lambda v: v
        if kind == "enum":
            return {"type": "string", "enum": rest.split(",")}, lambda v: v
        if rest in ("room", "color", "door", "scene") and r.random() < 0.12:
            # In the order drawn: that of a set differs from process to process, and so would all that is drawn later.
            values = dict.fromkeys(getattr(slots, rest)() for _ in range(r.randint(2, 4)))
            under = r.random() < 0.4
            codes = {v: v.replace(" ", "_") if under else v for v in values}
            return {"type": "string", "enum": list(codes.values())}, codes.get
        return {"type": "string"}, lambda v: v

    def enum_values(self, key):
        """Spoken values of a closed set, or None for free text."""
        _name, encode, _ = self.params[key]
        return list(encode.__self__) if hasattr(encode, "__self__") else None

    def call(self, values):
        """Arguments in declared order; None when a value is outside a closed set."""
        args = {}
        for key, (name, encode, req) in self.params.items():
            if key not in values:
                if req:
                    return None
                continue
            v = encode(values[key])
            if v is None:
                return None
            args[name] = v
        return {"name": self.name, "arguments": args}
