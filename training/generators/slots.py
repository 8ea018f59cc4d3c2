"""Fills the free-text slots of a sentence from an open vocabulary: the only way to get them right is to copy."""

from training.generators.words import (
    ADJS,
    CITIES,
    COLORS,
    DAYS,
    DOORS,
    FILL,
    GENRES,
    ITEMS,
    LABELS,
    NAMES,
    NOUNS,
    NUMBER_WORDS,
    OWNERS,
    ROOM_PARTS,
    ROOMS,
    SCENES,
    TITLES,
    VERBS,
    held_out,
    made_up,
)


class Slots:
    """Fills slots; ``unseen=True`` uses only held-out words, False never uses them."""

    def __init__(self, r, unseen=False):
        self.r, self.unseen = r, unseen

    def pick(self, words):
        pool = [w for w in words if held_out(w) == self.unseen] or words
        return self.r.choice(pool)

    def fresh(self):
        for _ in range(50):
            w = made_up(self.r)
            if held_out(w) == self.unseen:
                return w
        return w

    def case(self, w, p=0.3):
        return w.title() if self.r.random() < p and "'" not in w else w

    def room(self):
        k = self.r.random()
        if k < 0.74:
            return self.pick(ROOMS)
        if k < 0.82:
            return self.r.choice(ROOM_PARTS) + " " + self.pick(ROOMS)
        if k < 0.87:
            return self.r.choice(OWNERS) + " " + self.r.choice(("room", "bedroom", self.pick(ROOMS)))
        return self.fresh() + self.r.choice(("", "", " room"))

    def door(self):
        return self.pick(DOORS) if self.r.random() < 0.88 else self.fresh() + " door"

    def contact(self):
        k = self.r.random()
        n = self.pick(NAMES) if k < 0.82 else self.fresh()
        if self.r.random() < 0.08:
            n = self.r.choice(TITLES) + " " + n
        elif self.r.random() < 0.05:
            n += " " + self.fresh()
        return self.case(n, 0.45)

    def city(self):
        return self.case(self.pick(CITIES) if self.r.random() < 0.84 else self.fresh(), 0.5)

    def item(self):
        k = self.r.random()
        if k < 0.74:
            return self.pick(ITEMS)
        if k < 0.88:
            return self.r.choice(ADJS) + " " + self.pick(ITEMS + NOUNS)
        return self.fresh() + self.r.choice(("", " " + self.pick(ITEMS)))

    def music(self):
        k = self.r.random()
        if k < 0.62:
            return self.case(self.pick(GENRES), 0.1)
        if k < 0.86:
            title = " ".join(self.pick(NOUNS + ADJS) for _ in range(self.r.randint(1, 2)))
            return self.case(title + (" by " + self.pick(NAMES) if self.r.random() < 0.5 else ""), 0.3).replace(
                " By ", " by "
            )
        return self.case(self.fresh() + (" " + self.fresh() if self.r.random() < 0.5 else ""), 0.4)

    def scene(self):
        return self.pick(SCENES) if self.r.random() < 0.85 else self.fresh()

    def color(self):
        return self.pick(COLORS) if self.r.random() < 0.9 else self.fresh()

    def text(self):
        """A short message; grammar-like or loose words, so it must be copied."""
        k, p = self.r.random(), self.pick
        if k < 0.5:
            return " ".join(
                [p(VERBS), self.r.choice(("the", "my", "a", "your", "some")), p(NOUNS)]
                + (["for", p(NAMES)] if self.r.random() < 0.3 else [])
            )
        if k < 0.7:
            return " ".join(["i", "am", p(ADJS)] if self.r.random() < 0.5 else ["the", p(NOUNS), "is", p(ADJS)])
        if k < 0.85:
            return (
                "i will " + p(VERBS) + " the " + p(NOUNS) + " " + self.r.choice(("soon", "later", "tonight", "again"))
            )
        n = self.r.randint(1, 4)
        return " ".join(
            self.r.choice((p(NOUNS), p(VERBS), p(ADJS), self.r.choice(FILL), self.fresh())) for _ in range(n)
        )

    def task(self):
        p = self.pick
        s = p(VERBS) + " " + self.r.choice(("the", "my", "a", "some")) + " " + p(NOUNS)
        return s if self.r.random() < 0.85 else p(VERBS) + " " + self.fresh() + self.r.choice(("", " " + p(NOUNS)))

    def title(self):
        return self.r.choice(
            (
                self.pick(NOUNS),
                self.pick(ADJS) + " " + self.pick(NOUNS),
                self.pick(NOUNS) + " with " + self.pick(NAMES),
                self.fresh() + " " + self.pick(NOUNS),
            )
        )

    def time(self):
        h = self.r.randint(1, 12)
        return self.r.choice(
            (
                f"{h}:{self.r.randrange(60):02d}",
                f"{h} am",
                f"{h} pm",
                f"{h}pm",
                f"{h}am",
                f"{self.r.randint(0, 23)}:{self.r.randrange(0, 60, 5):02d}",
                "noon",
                "midnight",
            )
        )

    def day(self):
        return self.r.choice(DAYS)

    def label(self):
        return self.pick(LABELS) if self.r.random() < 0.88 else self.fresh()

    def number(self, lo, hi):
        """(spoken form, value)"""
        if self.r.random() < 0.1:
            word = self.r.choice([w for w, v in NUMBER_WORDS.items() if lo <= v <= hi] or ["ten"])
            return word, NUMBER_WORDS[word]
        n = self.r.randint(lo, hi)
        return str(n), n
