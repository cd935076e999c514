"""The grammar of questions about when, how often and how many, in English.

`simplified` drops what changes nothing ("altogether", "ever"); each pattern then has to match the
whole question, so that whatever else it asks is left to the search.
"""

import re
from typing import Final

NUMBERS: Final = ("two", "three", "four", "five", "six", "seven", "eight", "nine", "ten")
ORDINALS: Final = tuple("second third fourth fifth sixth seventh eighth ninth tenth".split())  # noqa: SIM905
LATELY: Final = ("recently", "most recently", "lately")
OLDEST: Final = frozenset(
    ("first", "earliest", "oldest", "start", "begin", "started", "began", "for the first time")
)

_POST = r"(?:blog ?)?(?:posts?|articles?|entry|entries|essays?|columns?|pieces?|texts?|notes?)"
_MY = r"(?:my|the|your|this)"
_BLOG = rf"{_MY} (?:blog|archive|site|posts|notes)"
_WROTE = (
    r"(?:wrote|written|writing|write|published|publish|posted|posting|post|blogged|blogging|blog)"
)
_I_WROTE = rf"(?: (?:that )?(?:did i|have i|do i|i have|i've|i) {_WROTE})?"
_SAID = (
    r"(?:(?:mention|mentioned|mentioning|write|written|wrote|writing|talk|talked|talking|say|said"
    r"|saying|speak|spoke|spoken|speaking|discuss|discussed|discussing|blog|blogged|blogging"
    r"|post|posted|posting|publish|published|publishing)(?: about| of| on)?"
    r"|(?:use|used)(?= the words?)|(?:refer|referred) to)"
)
_ABOUT_IT = (
    r"(?:(?:mention|mentioned|mentioning|discuss|discussed)|(?:write|written|wrote|writing|talk"
    r"|talked|talking|say|said|speak|spoke|spoken|blog|blogged|blogging|post|posted|publish"
    r"|published) (?:about|of|on))"
)
_OF = rf"{_ABOUT_IT} (?P<topic>.+?)"
_THOUGHT = rf"(?:{_SAID}|(?:think|thought|thinking)(?: about| of)?)"
# Of a post: what it does with a topic.
_MENTION = (
    r"(?:mentions?|mentioned|contains?|discuss(?:es)?|includes?|uses?|deals? with|refers? to"
    r"|talks? about|(?:is|are|was|were) about)"
)
_WITH = r"(?:about|on|of|regarding|concerning|mentioning|containing|with)"
_TOPIC = rf"(?: (?:{_WITH}|(?:that|which) {_MENTION}) (?P<topic>.+))?"
_FIRST = r"(?P<which>first|earliest|oldest|last|latest|newest|most recent)"
_NTH = rf"(?P<nth>{'|'.join(ORDINALS)}|\d{{1,4}}(?:st|nd|rd|th))"
_EACH = r" (?:(?:in )?(?:each|every)|per|a|by) (?P<each>year|month)"
_APPEAR = r"(?:mentioned|named|used|come up|appear|occur|turn up|discussed)"
_NUMBER = (
    rf"(?:how many|(?:in )?(?:the |my )?(?:total )?number of|what number of|count)"
    rf"(?: all)?(?: (?:of )?{_MY})?"
)
_WHAT_IS = r"(?:(?:what|which|where|when|who) (?:is|was|are|were) )?"
_PLEASE = r"(?:(?:can|could) you )?(?:(?:tell me|show me|show|list|find|give me) )?(?:all )?"

_DROPPED = re.compile(
    r"\b(?:please|ever|very|altogether|so far|in total|in all|all in all|overall|total)\b,?"
    r"|(?<=how many) of my(?= )|(?<=how many) of the(?= )",
    re.IGNORECASE,
)
_SHORT_IS = re.compile(r"\b(what|which|when|who)['’]s\b", re.IGNORECASE)
_LEADING = re.compile(r"^[\s,]+|\s+(?=,)|(?<=\s)\s+|[\s,]+$")


def simplified(question: str) -> str:
    """The question without words that do not change what it asks."""
    text = _SHORT_IS.sub(r"\1 is", question)
    return _LEADING.sub("", _DROPPED.sub(" ", text))


def compiled(*patterns: str) -> tuple[re.Pattern[str], ...]:
    """Patterns of whole questions."""
    return tuple(re.compile(_PLEASE + pattern, re.IGNORECASE) for pattern in patterns)


FIRST_OR_LAST: Final = compiled(
    rf"{_WHAT_IS}(?:{_MY} )?{_FIRST} {_POST} (?:on|in) {_BLOG}",
    rf"{_WHAT_IS}(?:{_MY} )?{_FIRST}(?: (?P<several>\d\d?|{'|'.join(NUMBERS)}))?"
    rf" (?:{_POST}|things?){_I_WROTE}(?: published| written)?(?:{_TOPIC}| about)",
    rf"{_WHAT_IS}(?:the )?{_FIRST} (?:{_POST}|thing)(?: that)? i {_WROTE}(?:{_TOPIC}| about)",
    rf"(?:what|which)(?: {_POST})? (?:is|was) (?:{_MY} )?{_FIRST}(?: {_POST})?",
    rf"when (?:did|have) i (?P<which>first|last|start|begin|stop|most recently)(?: to)?"
    rf" {_SAID}(?: (?:something|anything))?(?: (?P<topic>.+))?",
    rf"when (?:did|have) i {_OF} (?P<which>first|last|for the first time|most recently)",
    rf"when (?:did|have) i (?:write|publish|post) (?:{_MY} )?{_FIRST} {_POST}{_TOPIC}",
    rf"when (?:was|is) the {_FIRST} time (?:that )?i {_SAID}(?: (?P<topic>.+))?",
    rf"when (?:was|is|were|are) (?P<topic>.+) (?P<which>first|last|most recently) {_APPEAR}",
    rf"when (?:did|does|do) (?P<topic>.+) (?P<which>first|last) {_APPEAR}",
    rf"when did (?:{_MY} )blog (?P<which>start|begin)",
    rf"(?:when (?:was|is) )?(?:the )?{_FIRST} mention of (?P<topic>.+)",
    rf"(?:which|what) {_POST} (?P<which>first|last) {_MENTION} (?P<topic>.+)",
    rf"(?:which|what) {_POST} {_MENTION} (?P<topic>.+) (?P<which>first|last)",
    rf"(?:since when|how long) (?:have i been|do i|did i) (?:{_ABOUT_IT} (?P<topic>.+)|{_WROTE})",
    rf"(?:what|which {_POST}) (?:did|have) i {_SAID}"
    rf" (?P<which>first|last|{'|'.join(LATELY)}){_TOPIC}",
)
NTH: Final = compiled(
    rf"{_WHAT_IS}{_MY} {_NTH} (?:{_POST}|thing){_I_WROTE}{_TOPIC}",
)
BY_TIME: Final = compiled(
    rf"how (?:often|many times|many {_POST}) (?:did|do|have) i {_SAID}(?: (?P<topic>.+?))?{_EACH}",
    rf"(?:(?:how many|(?:the )?number of) )?{_POST}{_I_WROTE}{_TOPIC}{_EACH}{_I_WROTE}",
    rf"(?:in )?(?:which|what) (?P<each>year|month)s? (?:did|have) i {_OF}",
)
HOW_OFTEN: Final = compiled(
    rf"how (?:often|many times) (?:did|do|have) i {_SAID} (?P<topic>.+)",
    rf"how (?:often|many times) (?:is|was|are|were|does|do|did) (?P<topic>.+) {_APPEAR}",
    r"how many mentions (?:are there )?of (?P<topic>.+?)(?: are there)?",
)
HOW_MANY: Final = compiled(
    rf"how (?:often|many times) (?:have|did|do) i {_WROTE}",
    rf"(?:what is )?{_NUMBER} {_POST}(?: of mine)?(?: are of)?"
    rf"(?: (?:are|were) there| exist| (?:do|did) i have| does {_BLOG} have)?{_I_WROTE}"
    rf"(?: (?:are )?(?:on|in) {_BLOG})?(?:{_TOPIC}| {_MENTION} (?P<mentioned>.+)| (?:are|were))",
    rf"in how many {_POST} (?:do|did|have) i {_OF}",
    rf"in how many {_POST} (?:is|was|are|were|does|do|did) (?P<topic>.+) {_APPEAR}",
    rf"(?:(?:what|which)(?: of my)? |the |my )?{_POST}(?: of mine)? (?:that |which )?"
    r"(?:mentions?|contains?|mentioning|containing) (?P<topic>.+)",
    rf"(?:have|did|do) i {_OF}(?: before)?",
    rf"(?:do|does) any(?: of my)? {_POST} {_MENTION} (?P<topic>.+)",
    rf"(?:is|are) there (?:an? |any )?{_POST} (?:that |which )?(?:mentions?|mentioning)"
    r" (?P<topic>.+)",
)
HOW_MANY_WORDS: Final = compiled(
    rf"(?:how many|what is (?:the )?number of) words{_I_WROTE}"
    rf"(?: are there)?(?: are)?(?: (?:on|in) {_BLOG})?",
)
LONGEST: Final = compiled(
    rf"(?:(?:what|which)(?: (?:{_POST}|of my {_POST}))? (?:is|was) )?(?:(?:my|the|your) )?"
    rf"(?P<which>longest|shortest)(?: (?:{_POST}|thing))?{_I_WROTE}(?: (?:on|in) {_BLOG})?{_TOPIC}",
)
WHEN_MOST: Final = compiled(
    rf"(?:in )?(?:which|what) (?P<unit>year|month) (?:did|have) i"
    rf" {_WROTE}(?: the)? most(?: {_POST}| often)?{_TOPIC}",
    r"(?:what|which) (?:was|is) my most productive (?P<unit>year|month)",
    rf"(?:what|which) (?P<unit>year|month) (?:has|had) the most {_POST}{_TOPIC}",
)
IN_A_PERIOD: Final = compiled(
    rf"(?:what|which {_POST}|everything|what) (?:did|have)? ?i {_THOUGHT}(?: (?P<topic>.+))?",
    rf"(?:(?:what|which) )?(?:(?:is|was|are|were) )?(?:(?:my|the|your) )?{_POST}{_I_WROTE}{_TOPIC}",
    rf"(?:did|have) i (?:{_WROTE})(?: (?:something|anything))?(?: (?:about|on) (?P<topic>.+))?",
    rf"what was i {_THOUGHT}(?: (?P<topic>.+))?",
    r"what was i (?:working on|doing|up to)",
)
WHEN_ABOUT: Final = compiled(rf"when (?:did|have|do) i {_OF}")
WHEN_WRITTEN: Final = compiled(
    rf"(?:when|(?:on )?what day|(?:in )?(?:which|what) (?:year|month)) (?:did i {_WROTE}|was)"
    rf" (?:the {_POST} )?(?P<title>.+?)(?: {_WROTE})?",
    r"(?:what is )?(?:the )?date of (?:the (?:post|article|note) )?(?P<title>.+)",
)
