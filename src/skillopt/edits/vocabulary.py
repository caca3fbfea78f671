"""The words in which instructions are written: which may stand for which, and which say the opposite.

Only words in these tables are ever taken for one another or stemmed. Every other word (a name, a code, a term of the
tasks) stands for itself alone, so that two edits which differ in one are never the same.
"""

from __future__ import annotations

import re

PHRASES: tuple[tuple[re.Pattern[str], str], ...] = tuple(
    (re.compile(rf"\b(?:{old})(?!\w)", re.IGNORECASE), new)
    for old, new in (
        (r"(?:do not|don't|never) (?:forget|fail|neglect) to", ""),
        (r"(?:make|be) sure (?:that|to)|remember (?:that|to)|ensure that|take care to|it is important (?:that|to)", ""),
        (r"(?:and |with |, )?nothing (?:else|more)", " only"),
        (r"(?:and |with |, )?(?:no|without|without an|without any) explanations?", " only"),
        (r"(?:and |, )?(?:with no|no|without|without any) (?:extra|other|additional) (?:text|words?)", " only"),
        (r"nothing but", "only"),
        (r"no more than|not more than|a maximum of|up to", "at_most"),
        (r"at most", "at_most"),
        (r"no fewer than|no less than|not less than|a minimum of", "at_least"),
        (r"at least", "at_least"),
        (r"(?:shorter|fewer|less) than", "under"),
        (r"prior to", "before"),
        (r"(?:in case|whenever|as soon as|once)(?= \w+ \w+)", "if"),
        (r"instead of|rather than|in place of", "instead_of"),
        (r"in (?:an? )?alphabetical order|alphabetically", "alphabetic"),
        (r"in ascending order|ascending|oldest first|smallest first", "ascending"),
        (r"in descending order|descending|newest first|largest first", "descending"),
        (r"lower[ -]?case(?: letters?)?|small letters", "lowercase"),
        (r"upper[ -]?case(?: letters?)?|capital letters|all caps", "uppercase"),
        (r"word for word|verbatim|exactly as (?:it|they) (?:stands?|appears?|is|are)(?: written)?", "verbatim"),
        (r"verbatim as (?:it|they) (?:stands?|appears?|is|are)(?: written)?", "verbatim"),
        (r"(?:copy|extract)(?=[^.;]*verbatim)", "answer"),
        (r"(?:every|each|all|any) (?=(?:answer|reply|response|output)s?\b)", ""),
        (r"keep (?:the |your )?(?:answer|reply|response|output)s?(?= (?:under|below|at_most|short|brief))", ""),
        (r"prefer(?= the (?:\w+est|most)\b)", "use"),
        (r"say sorry", "apologise"),
        (r"and then", "then"),
        (r"(?:that|which) (?:has|have)", "with"),
        (r"(?:the|its|their|your|each|every) first", "the_first"),
        (r"(?:the|its|their|your|each|every) last", "the_last"),
        (r"(?:leave|leaving) out|omit(?:ting)?|exclude", "not include"),
        (r"refrain from|avoid", "not"),
        (r"in (?:the|your|its) (?:answer|reply|response|output)s?(?= |$|[.,;])", ""),
        (r"(?:spell|write) (\w+) out(?: in full)?", r"spell_out \1"),
        (r"spell out", "spell_out"),
        (r"(?:check|verify) (?:your |the )?(\w+) twice", r"check \1"),
        (r"double[- ]check", "check"),
        (r"(?:add|give|provide|include) (?:an |any )?explanations?(?: to (?:the|your) answer)?", "explain"),
        (r"(?:the )?(\w+) (?:does not|doesn't|do not|don't) contain (?:the |an? )?(\w+)", r"\2 not in \1"),
        (r"(\w+) (?:that|which) (?:is|are) (\w+ed)", r"\1 \2"),
        (r"(\w+) (?:that|which) (?:is|are) (\w+)", r"\2 \1"),
        (r"take(?= (?:the )?(?:\w+ )?(?:value|number|name|date|word|figure|column|row)s?\b)", "use"),
        (r"take(?= the (?:data|minimum|maximum)\b)", "use"),
        (r"write(?=[^.;,]* (?:in|into|inside) (?:the |an? )?(?:cell|column|row|file|field|box)\b)", "put"),
        (r"write(?=[^.;,]* (?:before|after|behind) )", "put"),
        (r"^\s*((?:[\w-]+ ){1,3})(?:is|are|must be|should be|is to be|are to be) (\w+ed)", r"\2 \1"),
        (r"one of(?: the (?:labels?|options?|words?|following))?", "one_of"),
        (r"the ((?:\w+ )?\w+) of (?:the |an? |your )?(\w+)", r"\2 \1"),
        (r"(\w+) of (?:the |an? |your )?(\w+)", r"\2 \1"),
        (r"((?:more|most|best) \w+) one", r"\1"),
        (r"(?:when|while)(?= \w+ing\b)", ""),
        (r"((?:ticket|request|question|message|complaint)s?\b[^.;,]*?) (?:goes|go|belongs?) (?:to|in)", r"\1"),
        (r"add(?:ing)? up", "sum"),
        (r"decimal places?", "decimals"),
        (r"(?:is|are) to be", "be"),
        (r"when asked (?:for|about)|if asked (?:for|about)", "for"),
        (r"make up|made up", "invent"),
        (r"quotation marks?", "quotes"),
        (r"look for", "search"),
        (r"not in|(?:is|are) missing from|(?:is|are) not in", "not in"),
    )
)  # fmt: skip
"""Turns of speech and the words that stand for them, in the order in which they are looked for."""

_FILLERS = """
a an the please also very really so that which who you your yours it its is are be been being must should shall do does
always ever any of as with there here simply carefully own formatting form unchanged
"""
_SAYING = (
    "answer reply respond response output give provide say state return write use employ choose pick select classify"
)
DROPPED = frozenset((_FILLERS + _SAYING).split())
"""Fillers, and the verbs of answering, using and choosing: what is answered, used or chosen says it all."""

_SYNONYMS = """
just solely merely exclusively alone: only
prefer favour favor: prefer
check verify confirm: check
put place wrap enclose: put
whole entire complete full: whole
every each all: each
if when: if
begin start: start
end finish: end
keep preserve retain maintain: keep
remove strip drop delete: remove
ignore disregard: ignore
sort order list: sort
compute calculate: compute
find locate: find
explain justify: explain
show display: show
brief short concise: short
ambiguous unclear: ambiguous
single one: 1
two: 2
three: 3
four: 4
five: 5
six: 6
seven: 7
eight: 8
nine: 9
ten: 10
zero: 0
never no without don't dont cannot can't cant doesn't doesnt: not
need needs: need
fit apply applies: fit
apologise apologize sorry: apologise
convert change transform: convert
reply: answer
separate split divide: separate
copy quote: copy
mention name: mention
treat handle: treat
behind after: after
into in inside: in
onto on: on
first initially: first
lastly finally last: last
examine inspect: examine
correct right: correct
wrong incorrect: wrong
same identical: same
several multiple: several
common frequent: common
"""
_NOUNS = """
label item date result number name question answer context passage sentence word line row column cell table page key
value unit amount object step option row source example rule code ticket request customer parcel order task tag letter
string digit year month day time sign format field header span title fact error person percentage fraction
abbreviation article decimals blank noun reference entry point limit match refusal phone country state explanation
label reason formula
"""
_VERBS = """
choose check use keep remove ignore sort compute find explain show convert separate copy mention treat examine read
open close search look round include cite guess repeat sum overwrite translate extract count classify belong stand
appear contain need answer skip stop try ask begin start end finish begin verify take pick select clean heat go add
list order put possible preserve disregard finish express leave invent apologise prefer favour reach spell_out
"""
SYNONYM: dict[str, str] = {
    word: concept.strip() for row in _SYNONYMS.strip().splitlines() for words, _, concept in [row.partition(":")]
    for word in words.split()
}  # fmt: skip

_ANTONYMS = """
first/last the_first/the_last before/after uppercase/lowercase ascending/descending shortest/longest short/long
up/down keep/remove include/exclude add/remove at_least/at_most singular/plural minimum/maximum min/max more/fewer
more/less increase/decrease allow/forbid accept/reject show/hide enable/disable start/end beginning/end old/new
old/recent oldest/newest brief/detailed short/detailed open/close open/closed absolute/relative abbreviate/spell_out
stop/continue case-sensitive/case-insensitive smallest/largest left/right above/below same/different digits/words
with/without lower/upper higher/lower true/false yes/no start/stop
"""
ANTONYMS = frozenset(frozenset(pair.split("/")) for pair in _ANTONYMS.split())


def _stems(word: str) -> set[str]:
    """The forms in which an instruction's word may stand: its plural, its -s, -ing and -ed."""
    base = word.removesuffix("e")
    doubled = word + word[-1]
    forms = {word, f"{word}s", f"{word}es", f"{base}ing", f"{base}ed", f"{doubled}ing", f"{doubled}ed"}
    if word.endswith("y"):
        forms |= {f"{word[:-1]}ies", f"{word[:-1]}ied"}
    return forms


VERBS = frozenset(_VERBS.split())
STEM: dict[str, str] = {form: word for word in [*_NOUNS.split(), *_VERBS.split()] for form in sorted(_stems(word))}
