"""Everyday English synonyms, British and American: "bicycle" and "bike".

The list has only words that are interchangeable in nearly any sentence, since a search replaces
one by the other.
"""

from typing import Final

_ENDINGS = (("ies", "y"), ("s", ""), ("es", ""), ("ed", ""), ("d", ""), ("ing", ""), ("ing", "e"))
_LEAST = 3  # minimum letters of a word without its ending

_GROUPS: Final = """
    airplane aeroplane plane aircraft, aluminium aluminum, apartment flat, attic loft garret,
    automobile car, backpack rucksack, begin start commence, bicycle bike cycle, bin dustbin,
    biscuit cookie, blizzard snowstorm, bookshop bookstore, brolly umbrella, bucket pail, burglar
    thief robber, buy purchase, cab taxi, candy sweets, catalog catalogue, cellar basement, cemetery
    graveyard churchyard, center centre, chemist pharmacy drugstore, clever intelligent, clothes
    clothing, coast seaside shore coastline seashore, color colour, cooker stove, cop police
    policeman, corridor hallway passage, couch sofa settee, dad daddy father papa, defence defense,
    diaper nappy, dinner supper, doctor physician gp, doughnut donut, earn income wages salary,
    elevator lift, employee worker, error mistake, exam examination, expensive costly, fast quick,
    faucet tap, favorite favourite, fix mend repair, flashlight torch, flavor flavour, flu
    influenza, fog mist, fridge refrigerator, frightened scared afraid, funeral burial, garbage
    rubbish trash, gasoline petrol, gift present, glasses spectacles, goal aim, grandad granddad
    grandpa grandfather, grandma gran granny nan grandmother, gray grey, harbor harbour port,
    holiday vacation, honor honour, house home, humor humour, husband spouse, ill sick unwell,
    illness disease sickness, infant baby, insulate insulation lagging, internet web, jail prison
    gaol, jeweller jeweler, jewellery jewelry, job employment, jumper sweater pullover, kid child,
    kilometer kilometre, labor labour, larder pantry, lavatory toilet loo, lawyer solicitor
    barrister attorney, letterbox mailbox, liter litre, lorry truck, luggage baggage, marriage
    wedding, math maths mathematics, medicine medication, meter metre, mobile cellphone smartphone,
    mom mum mummy mam mother, moustache mustache, movie film cinema, neighbor neighbour, newspaper
    paper, noise sound, nought zero, odd strange peculiar weird, odor odour smell, organise
    organize, parcel package, pavement sidewalk, phone telephone, photo photograph picture, plough
    plow, postman mailman, precipitation rainfall, program programme, programmer coder, pub tavern,
    pyjamas pajamas, quarrel argument, queue line, quiet silent, railroad railway, realise realize,
    recognise recognize, rich wealthy, road street, sad unhappy, sea ocean, shop store, silly stupid
    foolish, soccer football, speech talk lecture, storey story, storm gale tempest, surprised
    astonished amazed, teacher schoolteacher schoolmaster, television tv telly, theater theatre,
    tired weary, tom tomcat cat, tramp hobo, traveler traveller, traveling travelling, trip journey
    voyage, trousers pants, tire tyre, underground subway, vacuum hoover, vegetable veg, vicar
    priest parson clergyman, village town, wallet purse, website site, whiskey whisky, wireless
    radio, wood forest, writer author, yogurt yoghurt, zip zipper
"""

_ALIKE: Final[dict[str, tuple[str, ...]]] = {}
for _group in _GROUPS.split(","):
    for _word in _group.split():
        _others = (other for other in _group.split() if other != _word)
        _ALIKE[_word] = (*_ALIKE.get(_word, ()), *_others)


def synonyms_of(word: str) -> tuple[str, ...]:
    """The synonyms of a word, which may be in any number or tense."""
    return next((_ALIKE[form] for form in _plain_forms(word) if form in _ALIKE), ())


def _plain_forms(word: str) -> tuple[str, ...]:
    """The word and its possible base forms."""
    forms = [word]
    for ending, plain in _ENDINGS:
        if word.endswith(ending) and len(word) - len(ending) >= _LEAST:
            forms.append(word.removesuffix(ending) + plain)
    return tuple(forms)
