"""One event, many wordings: who did what to which thing, how it looked, where and when."""

import random
from dataclasses import dataclass, replace

from ..common import words as w

SYNONYMS = {word: group for group in (line.split("/") for line in """car/automobile/vehicle house/home/building
big/large/huge small/little/tiny happy/glad/cheerful sad/unhappy fast/quick/rapid doctor/physician child/kid
picture/image/photo street/road money/cash ill/sick angry/furious shop/store teacher/instructor ship/vessel
forest/woods dinner/supper gift/present trip/journey broken/damaged clever/smart/intelligent quiet/silent
loud/noisy bright/shining old/ancient funny/amusing strange/odd/weird cold/chilly clean/spotless laptop/computer
phone/telephone boat/rowboat stone/rock lamp/light coat/overcoat bag/sack ring/band neighbour/neighbor
farmer/peasant student/pupil baker/bread-maker nurse/carer manager/boss mother/mum father/dad friend/pal
ticket/pass letter/note jacket/coat knife/blade rabbit/bunny pig/hog""".split()) for word in group}

# base: past wordings / participles that fit "was … by"
VERBS: dict[str, tuple[list[str], list[str]]] = {}
for _line in """buy:bought,purchased,acquired:bought,purchased|lose:lost,misplaced:lost,misplaced
repair:repaired,fixed,mended:repaired,fixed,mended|sell:sold,got rid of:sold|break:broke,damaged,smashed:broken,damaged,smashed
find:found,discovered,came across:found,discovered|send:sent,mailed,shipped:sent,mailed,shipped
paint:painted,coloured:painted,coloured|clean:cleaned,washed,wiped:cleaned,washed,wiped
steal:stole,ran off with:stolen|hide:hid,concealed:hidden,concealed|borrow:borrowed,took on loan:borrowed
return:returned,gave back,brought back:returned,given back,brought back|carry:carried,transported:carried,transported
draw:drew,sketched:drawn,sketched|watch:watched,looked at,observed:watched,observed|want:wanted,wished for:wanted
open:opened,unlocked:opened,unlocked|throw away:threw away,discarded:thrown away,discarded|choose:chose,picked,selected:chosen,picked,selected
build:built,constructed,made:built,constructed,made|forget:forgot,left behind:forgotten,left behind""".replace("\n", "|").split("|"):
    _base, _past, _participle = _line.split(":")
    VERBS[_base] = (_past.split(","), _participle.split(","))

TIMES = {"last week": ["last week", "seven days ago", "the week before"], "in the morning": ["in the morning", "early in the day"], "today": ["today", "this day"],
         "at night": ["at night", "after dark"], "on Monday": ["on Monday", "Monday"], "yesterday": ["yesterday", "the day before today"],
         "last year": ["last year", "twelve months ago"], "in summer": ["in summer", "during the summer"], "at noon": ["at noon", "at midday"]}
PEOPLE = w.NAMES + ["doctor", "teacher", "child", "neighbour", "farmer", "driver", "nurse", "student", "manager", "baker", "painter", "pilot"]
THINGS = w.OBJECTS + w.FOODS + ["gift", "ship", "computer", "shirt", "table", "rabbit", "pig"]
LOOKS = w.ADJECTIVES + w.COLOURS
SLOTS = ("who", "did", "what", "look", "where", "when")


@dataclass(frozen=True)
class Frame:
    """The meaning of one sentence."""

    who: str
    did: str
    what: str
    look: str
    where: str
    when: str

    @property
    def key(self) -> str:
        """What the held-out split hashes."""
        return f"frame:{self.who}/{self.did}/{self.what}"


def _value(rng: random.Random, slot: str) -> str:
    if slot in ("who", "what") and rng.random() < 0.15:
        return w.pseudo_word(rng, 2).capitalize() if slot == "who" else w.pseudo_word(rng, 2)
    table = {"who": PEOPLE, "did": list(VERBS), "what": THINGS, "look": LOOKS, "where": w.PLACES, "when": list(TIMES)}
    return rng.choice(table[slot])


def draw_frame(rng: random.Random) -> Frame:
    """Any event."""
    return Frame(**{slot: _value(rng, slot) for slot in SLOTS})


def same_meaning(a: str, b: str) -> bool:
    """True for synonyms, which are no change."""
    return a == b or b in SYNONYMS.get(a, ())


def change(rng: random.Random, frame: Frame, slots: tuple[str, ...] = SLOTS) -> Frame:
    """The same event with one slot changed."""
    slot = rng.choice(slots)
    while True:
        value = _value(rng, slot)
        if not same_meaning(getattr(frame, slot), value):
            return replace(frame, **{slot: value})


def _synonym(rng: random.Random, word: str) -> str:
    return rng.choice(SYNONYMS[word]) if word in SYNONYMS else word


def _who(rng: random.Random, frame: Frame) -> str:
    return frame.who if frame.who[0].isupper() else "the " + _synonym(rng, frame.who)


def render(rng: random.Random, frame: Frame) -> str:
    """One of several wordings that keep all six slots."""
    who, what, look = _who(rng, frame), _synonym(rng, frame.what), _synonym(rng, frame.look)
    past, participle = (rng.choice(forms) for forms in VERBS[frame.did])
    when, form = rng.choice(TIMES[frame.when]), rng.randrange(7)
    text = [
        f"{who} {past} the {look} {what} {frame.where} {when}.", f"{when}, {who} {past} a {look} {what} {frame.where}.",
        f"the {look} {what} was {participle} by {who} {frame.where} {when}.", f"{frame.where} {who} {past} the {what}, which was {look}, {when}.",
        f"it was {who} who {past} the {look} {what} {when} {frame.where}.", f"{who} {past} the {look} {what} {when} {frame.where}.",
        f"the {what} that {who} {past} {frame.where} {when} was {look}.",
    ][form]
    return text[0].upper() + text[1:]


def question(rng: random.Random, frame: Frame) -> tuple[str, tuple[str, ...]]:
    """A question or keywords, and the slots that it names (a change elsewhere is no wrong answer)."""
    who, what, look = _who(rng, frame), _synonym(rng, frame.what), _synonym(rng, frame.look)
    past, participle = (rng.choice(forms) for forms in VERBS[frame.did])
    return rng.choice([
        (f"Who {past} the {look} {what}?", ("did", "look", "what")), (f"When was the {what} {participle} by {who}?", ("did", "what", "who")),
        (f"What happened to the {look} {what} {frame.where}?", ("look", "what", "where")), (f"Where was the {look} {what} {participle}?", ("look", "what", "did")),
        (f"What did {who} do with the {what} {rng.choice(TIMES[frame.when])}?", ("who", "what", "when")),
        (f"{who} {frame.did} {look} {what}", ("who", "did", "look", "what")), (f"Which {what} was {participle} {frame.where} by {who}?", ("what", "did", "where", "who")),
    ])
