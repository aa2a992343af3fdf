"""Write numbers as German, French and English words.

German puts the ones before the tens ("dreiundvierzig"), and French counts some tens in twenties
("quatre-vingt-onze"). English does neither, so a translator has to reorder and combine.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from random import Random

import torch
from torch import Tensor

Pairs = tuple[list[Tensor], list[Tensor]]  # inputs and targets

LARGEST = 9999
PAD, START, END = "<pad>", "<start>", "<end>"


def _words(text: str) -> list[str]:
    return text.split()


_SHARES = (1, 6, 6, 7)  # shares of numbers with one to four digits in a batch

_GERMAN = _words(
    "null ein zwei drei vier fünf sechs sieben acht neun zehn elf zwölf dreizehn vierzehn "
    "fünfzehn sechzehn siebzehn achtzehn neunzehn"
)
_GERMAN_TENS = _words("zwanzig dreißig vierzig fünfzig sechzig siebzig achtzig neunzig")
_FRENCH = _words(
    "zéro un deux trois quatre cinq six sept huit neuf dix onze douze treize quatorze quinze "
    "seize dix-sept dix-huit dix-neuf"
)
_FRENCH_TENS = _words("vingt trente quarante cinquante soixante")
_ENGLISH = _words(
    "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen "
    "fifteen sixteen seventeen eighteen nineteen"
)
_ENGLISH_TENS = _words("twenty thirty forty fifty sixty seventy eighty ninety")


def german(number: int) -> str:
    """Return `number` in German, as one word: 43 is "dreiundvierzig"."""
    _check(number)
    return _german(number) + ("s" if number % 100 == 1 else "")


def french(number: int) -> str:
    """Return `number` in French, as spelled before 1990: 91 is "quatre-vingt-onze"."""
    _check(number)
    text = _french(number)
    plural = text.endswith("quatre-vingt") or (number % 100 == 0 and number // 100 % 10 > 1)
    return text + ("s" if plural else "")


def english(number: int) -> str:
    """Return `number` in English, without hyphens, commas or "and": 43 is "forty three"."""
    _check(number)
    return " ".join(_english(number))


LANGUAGES: dict[str, Callable[[int], str]] = {"german": german, "french": french}


def _check(number: int) -> None:
    if not 0 < number <= LARGEST:
        raise ValueError(f"Numbers here go from 1 to {LARGEST}; got {number}.")


def _german(number: int) -> str:
    if number >= 1000:
        return _german(number // 1000) + "tausend" + _rest(_german, number % 1000)
    if number >= 100:
        return _german(number // 100) + "hundert" + _rest(_german, number % 100)
    if number >= 20:
        ones = _german(number % 10) + "und" if number % 10 else ""
        return ones + _GERMAN_TENS[number // 10 - 2]
    return _GERMAN[number]


def _french(number: int) -> str:
    for size, word in ((1000, "mille"), (100, "cent")):
        if number >= size:
            count = _french(number // size) + " " if number >= 2 * size else ""
            return count + word + _rest(_french, number % size, " ")
    if number >= 80:
        return "quatre-vingt" + _rest(_french, number - 80, "-")
    if number < 20:
        return _FRENCH[number]
    tens = min(number // 10, 6)
    ones = number - 10 * tens
    join = " et " if ones in (1, 11) else "-"
    return _FRENCH_TENS[tens - 2] + _rest(_french, ones, join)


def _english(number: int) -> list[str]:
    for size, word in ((1000, "thousand"), (100, "hundred")):
        if number >= size:
            rest = number % size
            return [*_english(number // size), word, *(_english(rest) if rest else [])]
    if number >= 20:
        ones = [_ENGLISH[number % 10]] if number % 10 else []
        return [_ENGLISH_TENS[number // 10 - 2], *ones]
    return [_ENGLISH[number]]


def _rest(say: Callable[[int], str], number: int, join: str = "") -> str:
    return join + say(number) if number else ""


class Vocabulary:
    """Characters or words and their ids. `<pad>` is 0, and the given tokens follow in order."""

    def __init__(self, tokens: Iterable[str]):
        self.tokens = [PAD, *dict.fromkeys(tokens)]
        self._ids = {token: i for i, token in enumerate(self.tokens)}

    def __len__(self) -> int:
        return len(self.tokens)

    def __getitem__(self, token: str) -> int:
        """Return the id of one token, or raise a ValueError that lists the known ones."""
        if token not in self._ids:
            known = " ".join(self.tokens[1:])
            raise ValueError(f"{token!r} is not in the vocabulary, which is: {known}")
        return self._ids[token]

    def ids(self, tokens: Iterable[str], *, device: torch.device | str | None = None) -> Tensor:
        """Return the ids of `tokens`, `(len(tokens),)` of int64."""
        return torch.tensor([self[token] for token in tokens], dtype=torch.int64, device=device)

    def words(self, ids: Iterable[int] | Tensor) -> list[str]:
        """Return the tokens of `ids`, without `<pad>`, `<start>` and `<end>`."""
        return [t for t in (self.tokens[int(i)] for i in ids) if t not in (PAD, START, END)]


class Numerals:
    """Numbers in one language, character by character, and in English, word by word.

    Args:
        language: "german" or "french".
        numbers: the numbers; by default all from 1 to 9999.

    Attributes:
        source: the `Vocabulary` of characters.
        target: the `Vocabulary` of English words, with `<start>` and `<end>`.
        unseen: 500 numbers that `batches` never yields. `seen` has the rest.
    """

    def __init__(self, language: str = "german", numbers: Sequence[int] | None = None):
        if language not in LANGUAGES:
            raise ValueError(f"`language` must be one of {', '.join(LANGUAGES)}; got {language!r}.")
        self.say = LANGUAGES[language]
        every = range(1, LARGEST + 1)
        numbers = list(every if numbers is None else numbers)
        self.source = Vocabulary(sorted(set("".join(map(self.say, every)))))
        self.target = Vocabulary([START, END, *_ENGLISH[1:], *_ENGLISH_TENS, "hundred", "thousand"])
        Random(0).shuffle(numbers)
        held_out = min(500, len(numbers) // 5)
        self.unseen, self.seen = numbers[:held_out], numbers[held_out:]

    def source_ids(self, text: str | int) -> Tensor:
        """Return the ids of the characters of a numeral, given as text or number, `(m,)`."""
        return self.source.ids(self.say(text) if isinstance(text, int) else text.lower().strip())

    def pair(self, number: int) -> tuple[Tensor, Tensor]:
        """Return the ids of the characters of `number`, and of its English words and `<end>`."""
        return self.source_ids(number), self.target.ids([*_english(number), END])

    def batches(self, size: int, generator: torch.Generator) -> Iterator[Pairs]:
        """Yield random pairs of seen numbers without end, `size` at a time, on the CPU.

        The generator may belong to another device. The number of digits is drawn first. Otherwise
        nine of ten numbers would have four.
        """
        by_digits = [[n for n in self.seen if len(str(n)) == k] for k in range(1, 5)]
        shares = [float(w * bool(n)) for w, n in zip(_SHARES, by_digits, strict=True)]
        chance = torch.tensor(shares, device=generator.device)
        while True:
            digits = torch.multinomial(chance, size, replacement=True, generator=generator)
            places = torch.rand(size, generator=generator, device=generator.device)
            groups = [by_digits[k] for k in digits.tolist()]
            chosen = [g[int(u * len(g))] for g, u in zip(groups, places.tolist(), strict=True)]
            pairs = [self.pair(number) for number in chosen]
            yield [source for source, _ in pairs], [target for _, target in pairs]
