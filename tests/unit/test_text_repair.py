import re
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ownwords.archive.text_repair import repair_line, repair_text

ORDINARY = [
    "Plain words, and nothing else.\n\tIndented with a tab;   three spaces stay.",
    "“Curly” ‘quotes’ — dashes – and… ﬁne ligatures, ｗｉｄｅ letters, ½ and №.",
    "L’été, c’est l’époque où l’on rêve « à l’ombre » — cœur, œuvre, Ça et là : 20 °C, 5 €.",
    "Grüße aus Köln, Äpfel & Öl; „so“ steht’s da. Ø, Å, æ, ñ, ç, ß.",
    "Tiếng Việt: Tôi có thể ăn thuỷ tinh mà không hại gì.",
    "Zażółć gęślą jaźń. Příliš žluťoučký kůň. Árvíztűrő tükörfúrógép. İstanbul’da ığdır.",
    "Съешь же ещё этих мягких французских булок. Їжак, Ђорђе — «да».",
    "Ξεσκεπάζω την ψυχοφθόρα βδελυγμία. Ὦ ξεῖν’, ἀγγέλλειν",
    "אני יכול לאכול זכוכית וזה לא מזיק לי. שָׁלוֹם",
    "أنا قادر على أكل الزجاج و هذا لا يؤلمني.",
    "من می\u200cتوانم بدونِ احساس درد شيشه بخورم؛ ه\u200d ق",
    "मैं काँच खा सकता हूँ। क्\u200dष और क्\u200cष",
    "నేను గాజు తినగలను. ഞാൻ ഗ്ലാസ് തിന്നും. நான் கண்ணாடி.",
    "ฉันกินกระจกได้ แต่มันไม่ทำให้ฉันเจ็บ",
    "ខ្ញុំ\u200bអាច ฉัน\u200bกิน မြန်မာ\u200bစာ",
    "NÃO, MANHÃ! “AMANHÔ, «MAÇû… SÃO PAULO",
    "Where UTF-8 is read as Latin-1, é becomes Ã© and ’ becomes â€™.",
    "我能吞下玻璃而不伤身体。「引用」、私はガラスを食べられます。나는 유리를 먹을 수 있어요.",
    "👩\u200d💻 👨\u200d👩\u200d👧 ❤️\u200d🔥 🏳️\u200d🌈 👍🏽 🇫🇷 1️⃣ ☕",
    "\U0001f3f4\U000e0067\U000e0062\U000e0065\U000e006e\U000e0067\U000e007f for England",
    "x² ≤ y³ → ∑ ∞, a₁·b₂; ├── └── █▓▒░",
]


@pytest.mark.parametrize("text", ORDINARY)
def test_ordinary_text_in_any_script_is_unchanged(text: str) -> None:
    assert repair_text(text) == (text, {})


@pytest.mark.parametrize(
    ("damaged", "expected"),
    [
        ("Iâ€™d say so", "I’d say so"),
        ("Ã\xadtem", "ítem"),
        ("voilÃ\xa0 tout", "voilà tout"),
        ("\x93hello\x94 \x85", "“hello” …"),
        ("l’Ã©tÃ© — “déjà”", "l’été — “déjà”"),
        ("вЂ“ РџСЂРёРІРµС‚", "– Привет"),
    ],
)
def test_encoding_damage_is_repaired(damaged: str, expected: str) -> None:
    assert repair_text(f"A good line.\n{damaged}\nAnother, é’ä.") == (
        f"A good line.\n{expected}\nAnother, é’ä.",
        {"encoding errors repaired": 1},
    )


@pytest.mark.parametrize(
    ("text", "repaired", "counts"),
    [
        ("a\u200bb\ufeffc\xadd\u2060e", "abcde", {"zero-width characters": 4}),
        ("a\u200db a\u200cb", "ab ab", {"zero-width characters": 2}),
        ("می\u200c\u200c\u200bخواهم", "می\u200cخواهم", {"zero-width characters": 2}),
        ("שלום\u200f \u202aabc\u202c \u2066x\u2069", "שלום abc x", {"text-direction marks": 5}),
        ("\x1b[31mred\x1b[0m", "red", {"control characters": 9}),
        ("x\U000e0041\U000e007f", "x", {"zero-width characters": 2}),
        ("\U0001f3f4\U000e0067", "\U0001f3f4", {"zero-width characters": 1}),
        ("a\ud800b", "a\ufffdb", {"broken characters replaced": 1}),
        ("a\ud83d\ude00b", "a😀b", {}),
        ("a\r\nb\rc\u2028d\x0ce", "a\nb\nc\nd\ne", {}),
        ("cafe\u0301", "café", {}),
    ],
)
def test_invisible_characters_are_removed_and_counted(
    text: str, repaired: str, counts: dict[str, int]
) -> None:
    assert repair_text(text) == (repaired, counts)


def test_a_title_becomes_one_clean_line() -> None:
    assert repair_line("Wine When It Is Red\r") == "Wine When It Is Red"
    assert repair_line(" The \xa0 Boy\r Revisited\n") == "The Boy Revisited"
    assert repair_line("\u200b\x00") == ""
    assert repair_line("Itâ€™s") == "It’s"


@given(st.text(alphabet=st.characters()))
def test_no_invisible_character_is_left(text: str) -> None:
    repaired, counts = repair_text(text)
    unseen = {c for c in repaired if unicodedata.category(c) in ("Cc", "Cs")}
    assert unseen <= {"\n", "\t"}
    assert not re.search("[\xad\u200e\u200f\u202a-\u202e\u2060-\u206f\ufeff]", repaired)
    assert all(count > 0 for count in counts.values())
    assert unicodedata.is_normalized("NFC", repaired)
    repaired.encode("utf-8")


@given(st.text(alphabet=st.characters(categories=["L", "N", "P", "Zs"])))
def test_letters_are_lost_only_with_a_count(text: str) -> None:
    repaired, counts = repair_text(text)
    if not counts:
        assert unicodedata.normalize("NFD", repaired) == unicodedata.normalize("NFD", text)
