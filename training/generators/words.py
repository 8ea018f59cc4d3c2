"""Word lists of the broad generator, all written for this project.

About one word in eight is held out by a checksum: training never shows it, the test of unseen words shows nothing else.
"""

import zlib


def words(text):
    """The words of a list; an underscore stands for the space inside one."""
    return [w.replace("_", " ") for w in text.split()]


ROOMS = words("""kitchen bedroom living_room bathroom office garage hallway attic study porch basement
dining_room nursery laundry_room guest_room playroom pantry library den loft cellar sunroom workshop patio
balcony entryway staircase studio gym conservatory greenhouse closet lounge foyer mudroom terrace corridor
kids_room music_room media_room utility_room spare_room shed barn landing cloakroom parlour veranda""")
ROOM_PARTS = words("upstairs downstairs main small back front north guest old new blue big left master")
OWNERS = words("emma's leo's dad's mum's anna's grandma's the_twins'")
DOORS = words("""front_door back_door garage_door side_door cellar_door patio_door main_gate garden_gate
shed_door balcony_door office_door entrance basement_door safe gate barn_door kitchen_door""")
NAMES = words("""anna ben carla david emma felix grace henry ines jonas kira leo maria nils olga paul quinn rosa
sam tara umar vera walter yara zoe mum dad grandma alex chris dana erik fatima george hannah ivan julia kevin
lena marco nora oscar petra ravi sofia tom ursula victor wendy priya omar aisha kenji mei bruno clara dmitri
eva farid greta hugo irene jack karen liam mina noah olive peter rita simon theo una""")
TITLES = words("doctor aunt uncle cousin coach professor")
CITIES = words("""paris lagos berlin tokyo madrid oslo cairo lima rome dublin delhi boston vienna prague lisbon
athens nairobi sydney toronto chicago seattle denver austin bergen geneva milan turin porto seville lyon
marseille hamburg munich cologne zurich basel krakow warsaw riga vilnius helsinki tampere stockholm malmo
copenhagen aarhus bristol leeds york glasgow cardiff belfast cork galway quito bogota santiago havana
new_york san_diego los_angeles mexico_city cape_town new_delhi hong_kong rio tunis accra dakar osaka kyoto
busan hanoi manila perth auckland""")
ITEMS = words("""milk bread eggs butter cheese apples bananas rice pasta coffee tea sugar salt flour tomatoes
onions garlic carrots potatoes lemons yoghurt honey oats soap shampoo batteries candles napkins sponges
olive_oil peanut_butter orange_juice toilet_paper dog_food cat_litter light_bulbs paper_towels ice_cream
green_tea chicken_breast frozen_peas tooth_paste basil mint spinach mushrooms pears grapes walnuts raisins
crackers cookies vinegar mustard pepper cream tofu beans lentils salmon ham plums foil tape nails""")
GENRES = words("""jazz rock blues pop techno folk soul funk opera reggae country metal disco house ambient salsa
classical_music lofi_beats piano_music movie_soundtracks dance_music acoustic_guitar film_scores swing gospel""")
SCENES = words("""movie_night good_night morning reading dinner party relax romance focus bedtime away holiday
gaming sunrise cleaning yoga cinema work evening guests breakfast storm winter""")
COLORS = words("red green blue yellow purple orange pink white warm_white cyan teal violet amber turquoise gold")
NOUNS = words("""car dog cat garden bill report letter ticket book window roof door bike phone laptop printer
meeting package parcel plant table chair lamp key coat shirt shoe cake soup salad dinner lunch game movie song
train bus flight hotel bank school doctor dentist passport camera photo invoice contract project budget team
river mountain moon star cloud rain snow storm ship engine bridge tower castle king queen horse bird fish tree
flower boat road map box bag cup plate knife oven fridge heater filter battery screen cable router wallet rent
gift card party wedding birthday exam lesson homework piano guitar drum violin paint brush ladder hammer""")
VERBS = words("""buy call pay clean fix water feed walk send read write book check return collect bring wash
empty charge order cancel renew move sell paint pack print sign update visit find open close turn take
move carry repair polish borrow lend mail sort fold mix bake cook""")
ADJS = words("""late early ready happy tired busy old new big small red blue quiet loud warm cold heavy light
broken empty full clean dirty fresh dry wet sharp quick slow""")
FILL = words("""the a my your this that with from for about at in on near after before without and or will is
are was very soon later again there here home outside we i you they""")
DAYS = words("today tomorrow monday tuesday wednesday thursday friday saturday sunday")
LABELS = words("pasta pizza tea eggs laundry rice cake nap oven workout bread soup study break grill noodles")
NUMBER_WORDS = {
    "two": 2,
    "three": 3,
    "five": 5,
    "ten": 10,
    "fifteen": 15,
    "twenty": 20,
    "thirty": 30,
    "forty": 40,
    "fifty": 50,
    "sixty": 60,
    "ninety": 90,
}
_ONSET = "b c d f g h j k l m n p r s t v w z br cr dr fr gr pr tr bl cl fl gl pl st sp sk sh ch th qu".split()
_NUC = "a e i o u a e i o ai ea ee io oo ou".split()
_CODA = ["", "", "", "n", "r", "s", "t", "l", "m", "x", "k", "nd", "rt", "lm", "sh"]


def held_out(word):
    """About one slot word in eight is kept for the unseen-words test."""
    return zlib.crc32(word.encode()) % 8 == 3


def made_up(r):
    """A word that no list holds: it can only be copied."""
    return "".join(r.choice(_ONSET) + r.choice(_NUC) + r.choice(_CODA) for _ in range(r.choice((1, 2, 2))))[:7]
