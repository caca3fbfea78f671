"""Reads numbers in text: thousand separators, decimal commas, powers of ten, words such as `million`, and units."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass

_GROUPED = r"\d{1,3}(?:[ \u00a0\u2009\u202f'’_]\d{3})+(?:[.,]\d+)?(?!\d)"
_PLAIN = r"\d[\d.,]*\d|\d|[.,]\d+"
_NUMBER = re.compile(
    rf"(?<![\w.,])(?P<sign>[-+−–]?)(?P<money>[$€£¥]?)\s?(?P<sign2>[-+−]?)"
    rf"(?P<digits>{_GROUPED}|{_PLAIN})"
    r"(?:\s?(?:[eE](?P<exp>[-+]?\d{1,3})(?![\w.])|[x×*]\s?10(?:\^|\*\*)?(?P<power>[-+−]?\d{1,3})))?"
    r"(?:\s?/\s?(?P<over>\d+(?:\.\d+)?)(?![\d/]))?"
    r"(?:\s?(?P<word>thousand|million|billion|trillion|mio|mrd|bn|[kKM](?![\w/])))?"
    r"(?:\s{0,2}(?P<unit>%|‰|°\s?[CF]|[$€£¥]|[A-Za-zµμ°Ω][\w/²³^°µμΩ]*))?"
)
_WORDS = {"thousand": 1e3, "k": 1e3, "million": 1e6, "mio": 1e6, "m": 1e6, "billion": 1e9, "bn": 1e9, "mrd": 1e9}
_WORDS |= {"trillion": 1e12}

_SCALES: dict[str, dict[str, float]] = {
    "length": {"m": 1, "km": 1e3, "cm": 1e-2, "mm": 1e-3, "µm": 1e-6, "mi": 1609.344, "ft": 0.3048, "in": 0.0254}
    | {"yd": 0.9144},
    "mass": {"g": 1, "kg": 1e3, "mg": 1e-3, "t": 1e6, "lb": 453.59237, "oz": 28.349523125},
    "time": {"s": 1, "ms": 1e-3, "min": 60, "h": 3600, "d": 86400, "wk": 604800},
    "volume": {"l": 1, "ml": 1e-3, "cl": 1e-2, "m³": 1e3},
    "area": {"m²": 1, "km²": 1e6, "cm²": 1e-4, "ha": 1e4},
    "data": {"b": 1, "kb": 1e3, "mb": 1e6, "gb": 1e9, "tb": 1e12},
    "speed": {"m/s": 1, "km/h": 1 / 3.6, "mph": 0.44704},
    "share": {"%": 0.01, "‰": 0.001},
}
_KINDS = {unit: (kind, scale) for kind, units in _SCALES.items() for unit, scale in units.items()}
_ALIASES = """
m: meter meters metre metres; km: kilometer kilometers kilometre kilometres kms; cm: centimeter centimeters centimetre
centimetres; mm: millimeter millimeters millimetre millimetres; mi: mile miles; ft: foot feet; in: inch inches;
yd: yard yards; g: gram grams gramme grammes; kg: kilogram kilograms kilo kilos kgs; mg: milligram milligrams;
t: ton tons tonne tonnes; lb: lbs pound pounds; oz: ounce ounces; s: sec secs second seconds; ms: millisecond
milliseconds; min: mins minute minutes; h: hr hrs hour hours; d: day days; wk: week weeks; l: liter liters litre litres;
ml: milliliter milliliters millilitre millilitres; cl: centiliter centiliters; b: byte bytes; kb: kilobyte kilobytes;
mb: megabyte megabytes; gb: gigabyte gigabytes; tb: terabyte terabytes; %: percent percentage pct per_cent;
$: usd dollar dollars; €: eur euro euros; £: gbp; ¥: yen jpy; m²: m2 m^2 sqm; m³: m3 m^3; km²: km2 km^2; cm²: cm2 cm^2;
km/h: kmh kph; °c: celsius; °f: fahrenheit
"""
_CANONICAL = {
    alias: name.strip()
    for entry in _ALIASES.replace("\n", " ").split(";")
    for name, aliases in [entry.split(":")]
    for alias in aliases.split()
}


@dataclass(frozen=True)
class Quantity:
    """A number, and its unit if it has one."""

    value: float
    unit: str = ""

    def __str__(self) -> str:
        return f"{self.value:.12g}{' ' * bool(self.unit)}{self.unit}"

    def in_unit_of(self, other: Quantity) -> float | None:
        """The value in the unit of `other`; None if the units measure different things."""
        if self.unit == other.unit:
            return self.value
        mine, theirs = _KINDS.get(self.unit), _KINDS.get(other.unit)
        if mine is None or theirs is None or mine[0] != theirs[0]:
            return None
        return self.value * mine[1] / theirs[1]


def quantities(text: str, decimal: str = ".") -> list[Quantity]:
    """Every number in the text, in order. `decimal` is the decimal separator in ambiguous texts such as `1,234` and
    `1.234`."""
    quantities_read = []
    for match in _NUMBER.finditer(text[-20_000:]):
        value = _value(match["digits"], decimal)
        if value is None:
            continue
        power = match["exp"] or match["power"]
        value *= float(f"1e{int(power.replace('−', '-'))}") if power else 1.0  # too large is infinite, not an error
        if match["over"] and float(match["over"]):
            value /= float(match["over"])
        value *= _WORDS.get((match["word"] or "").lower(), 1.0)
        if (match["sign"] or match["sign2"]) in {"-", "−", "–"} and (match["sign"] or match["sign2"]):
            value = -value
        if math.isfinite(value):
            quantities_read.append(Quantity(value, canonical_unit(match["money"] or match["unit"] or "")))
    return quantities_read


def canonical_unit(unit: str) -> str:
    """The usual name of a unit, such as `km` for `Kilometres`; a word that is not a known unit is returned in lower
    case."""
    plain = "".join(unit.split()).replace("μ", "µ").casefold().rstrip(".")
    return _CANONICAL.get(plain, plain)


def known_unit(unit: str) -> bool:
    """Is this word after a number a unit? If not, it is only the next word of the sentence."""
    return unit in _KINDS or unit in _CANONICAL.values()


def _value(digits: str, decimal: str) -> float | None:
    """The number that digits with separators mean; None if they are not a number."""
    plain = re.sub(r"[ \u00a0\u2009\u202f'’_]", "", digits).rstrip(".,")
    dots, commas = plain.count("."), plain.count(",")
    if dots and commas:  # the last one is the decimal separator
        mark = max(".,", key=plain.rfind)
        plain = plain.replace("," if mark == "." else ".", "").replace(mark, ".")
    elif dots + commas:
        mark = "." if dots else ","
        groups = re.fullmatch(r"\d{1,3}(?:[.,]\d{3})+", plain)
        if dots + commas > 1 or (groups and mark != decimal):
            plain = plain.replace(mark, "") if groups else plain
        else:
            plain = plain.replace(mark, ".")
    try:
        return float(plain)
    except ValueError:  # 1.2.3 is a version, not a number
        return None
