"""The heuristic miner: finds corrections in sessions without a model, and groups similar corrections into tasks.

Signs of a correction are the words of the user's turn, a declined tool call, a repeated request, and an agent that then
does the same work again in a different way. The similarity of two corrections is measured on their words, and
on the words that were added to the answers or removed from them.
"""

from __future__ import annotations

import math
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache

from skillopt.tasks.check_fields import MinedCheck
from skillopt.tasks.scoring import contains
from skillopt_harvest.records import AgentSession, Correction, MinedTask, short_id
from skillopt_harvest.redact import PLACEHOLDER

_CUE = re.compile(
    r"""\b(?:no|nope|not|don'?t|never|wrong|instead|again|always|should|must|stop|undo|revert|rather|actually|redo|amend
      |rewrite|please|use|forgot|remove|only|prefer|we're|here)\b|n't\b|[!?]{2}|\.\.\.\Z""",
    re.VERBOSE | re.IGNORECASE,
)
_STRONG = re.compile(
    r"""\A\W*(?:no|nope|wrong|not\ like|undo|revert|stop)\b(?!\s+(?:worries|problem|need|thanks))
      |\b(?:instead\ of|not\ \w+[,.;]?\ (?:but|use)|never\ |i\ (?:told|said|meant|wanted)
      |(?:don't|do\ not)\ (?:use|touch|edit))""",
    re.VERBOSE | re.IGNORECASE,
)
_FOLLOW_UP = re.compile(
    r"""\A\W*(?:thanks|thx|great|perfect|nice|ok\b|wonderful|looks\ good|now\b|next\b|also\b
      |no\ worries|can\ you\ show|never\ ?mind|actually\ never|why\b|should\ it|yes\b|sure\b|go\ on)""",
    re.VERBOSE | re.IGNORECASE,
)
_REGRET = re.compile(r"\b(?:sorry|apolog\w+|my mistake|you're right|you are right|good catch)\b", re.IGNORECASE)
_WORD = re.compile(r"[^\W\d_]\w*(?:-\w+)*|\d[\d./-]*|[^\w\s.,:;!?'\"`()\[\]{}<>/\\|=+*$@#%&~^…-]")
_COMMON_WORDS = """
a an and are as at be but by can could did do does done for from get go had has have here how i if in instead into is
it its it's just let like make me my need no not now of off on one or our out please put redo right run same say saying
should so some such sure take than thanks that the their them then there these they this those to too up us use used
using very want was way we we're what when where which who why will with without work would wrong yes you your again
always never don't dont nope still only all any everything keep write add
"""
_COMMON = frozenset(_COMMON_WORDS.split())
LIKE = 0.24
"""Two corrections with at least this similarity may be treated as the same."""


@lru_cache(512)
def words_of(text: str) -> frozenset[str]:
    """Return the words of a text without their endings. Common words are left out."""
    words = (word.lower().strip("-'.") for word in _WORD.findall(PLACEHOLDER.sub(" ", text)))
    return frozenset(_stem(word) for word in words if word and word not in _COMMON)


@lru_cache(1 << 14)
def _stem(word: str) -> str:
    if re.fullmatch(r"\d{4}-\d\d-\d\d", word):
        return "yyyy-mm-dd"
    if re.fullmatch(r"[a-z]{2,5}-\d+", word):  # such as ENG-412
        return word.partition("-")[0]
    for ending in ("ing", "ed", "es", "s"):
        if len(word) > len(ending) + 3 and word.endswith(ending) and word.isascii():
            return word.removesuffix(ending)
    return word if word.isascii() or word.isalpha() else "emoji"


def find_corrections(session: AgentSession) -> Iterator[Correction]:
    """Yield the corrections of one session, each with the request and both answers."""
    for number, said in enumerate(session.turns):
        each = correction_at(session, number)
        if each and (said.declined or is_correction(each.request, each.rejected, each.words, each.corrected)):
            yield each


def correction_at(session: AgentSession, number: int) -> Correction | None:
    """Return the turn as a correction; None if it is not a user's turn after a request and an answer."""
    turns = session.turns[max(0, number - 2) : number + 2]
    if number < 2 or [turn.role for turn in turns[:3]] != ["user", "assistant", "user"]:
        return None
    request, rejected, said = turns[:3]
    return Correction(
        source=session.source,
        session=session.id,
        line=request.line,
        last_line=turns[-1].last_line,
        request=request.text,
        rejected=rejected.work,
        words=said.text,
        corrected="\n".join(turn.work for turn in turns[3:]),
        skills=session.skills,
        moment=said.moment,
        forked=session.forked,
    )


def without_copies(corrections: Iterable[Correction]) -> list[Correction]:
    """Return the corrections without copies. (An agent that resumes or forks a session may copy its lines.) Two
    corrections with the same words and work are copies if they have the same time, or if one of them is in a forked
    session."""
    seen: set[tuple[str, ...]] = set()
    kept = {}
    for each in sorted(corrections, key=lambda each: each.forked):
        event = (each.source, each.request, each.rejected, each.words)
        moments = {(*event, each.moment)} if each.moment else set()
        if not moments & seen and not (each.forked and event in seen):
            kept[each.key] = each
        seen |= {event} | moments
    return list(kept.values())


def is_correction(request: str, rejected: str, said: str, corrected: str) -> bool:
    if len(said) > 600:
        return False
    said_words, asked = words_of(said), words_of(request)
    before, after = words_of(rejected), words_of(corrected)
    repeated = len(said_words) >= 3 and _share(asked, said_words) >= 0.7 and _numbers(said) == _numbers(request)
    redone = _share(before, after) >= 0.25 and bool(after - before)
    continued = redone or len(after & (asked | before)) >= 0.2 * len(after) > 0
    strong = bool(_STRONG.search(said))
    asked_for = bool(said_words & (before ^ after)) if continued else strong and bool(said_words & (after - before))
    regretted = bool(_REGRET.match(corrected))
    if corrected and not (repeated or redone or asked_for or regretted):
        return False  # the agent then did something else
    strength = 2 * strong + bool(_CUE.search(said)) + regretted + redone
    strength += 2 * asked_for + 2 * repeated - 2 * bool(_FOLLOW_UP.match(said))
    return strength >= 2


def _numbers(text: str) -> frozenset[str]:
    """Return the numbers in a text. The same request with a different number is a different request."""
    return frozenset(re.findall(r"\d+", text))


def _share(a: frozenset[str], b: frozenset[str]) -> float:
    return len(a & b) / (min(len(a), len(b)) or 1)


def group(corrections: Sequence[Correction]) -> list[MinedTask]:
    """Group corrections that mean the same rule into tasks. The tasks with the most sessions are first."""
    features = [_features(each) for each in corrections]
    frequency = Counter(word for each in features for word in each)
    total = len(corrections)
    weights = {word: math.log(1 + total / count) for word, count in frequency.items()}
    vectors = [_unit({word: weights[word] * value for word, value in each.items()}) for each in features]
    clusters = _clusters(vectors)
    tasks = [task_of([corrections[place] for place in sorted(cluster)]) for cluster in clusters]
    return sorted(tasks, key=lambda task: (-task.sessions, task.id))


def _features(each: Correction) -> dict[str, float]:
    """Return the weights of words: the words of the correction, and the words that it added to the answer or removed
    from it. If a word has several weights, they are added."""
    said, before, after = words_of(each.words), words_of(each.rejected), words_of(each.corrected)
    asked = words_of(each.request)
    features = dict.fromkeys(said - asked or said, 1.0)
    for word in (after - before) - asked if each.corrected else ():
        features[word] = features.get(word, 0.0) + 0.8
    for word in (before - after) - asked if each.corrected else ():
        features[word] = features.get(word, 0.0) + 0.5
    return features


def _unit(vector: dict[str, float]) -> dict[str, float]:
    length = math.sqrt(sum(value * value for value in vector.values())) or 1.0
    return {word: value / length for word, value in vector.items()}


def _clusters(vectors: Sequence[dict[str, float]]) -> list[set[int]]:
    """Cluster by greedy average linkage: join the most similar pair first."""
    by_word: dict[str, list[int]] = defaultdict(list)
    for place, vector in enumerate(vectors):
        for word in vector:
            by_word[word].append(place)
    pairs: Counter[tuple[int, int]] = Counter()
    for word, places in by_word.items():
        if len(places) <= 60:  # frequent words do not tell corrections apart
            for index, a in enumerate(places):
                for b in places[index + 1 :]:
                    pairs[a, b] += vectors[a][word] * vectors[b][word]  # type: ignore[assignment]
    cluster_of = {place: {place} for place in range(len(vectors))}
    for (a, b), likeness in sorted(pairs.items(), key=lambda pair: (-pair[1], pair[0])):
        first, second = cluster_of[a], cluster_of[b]
        if likeness < LIKE or first is second:
            continue
        links = [pairs[min(x, y), max(x, y)] for x in first for y in second]
        if sum(links) / len(links) >= LIKE / 2:
            first |= second
            for place in second:
                cluster_of[place] = first
    return [set(cluster) for cluster in {id(each): each for each in cluster_of.values()}.values()]


def task_of(members: Sequence[Correction], rule: str = "", check: MinedCheck | None = None) -> MinedTask:
    """Return the task for corrections that mean the same rule. Its id is made from the first correction, so later
    harvests do not change the id."""
    skills = Counter(skill for each in members for skill in each.skills)
    return MinedTask(
        id=short_id(members[0].key),
        rule=rule or _typical(members).words,
        check=check or written_check(members),
        occurrences=tuple(members),
        skill=skills.most_common(1)[0][0] if skills else "",
    )


def _typical(members: Sequence[Correction]) -> Correction:
    """Return the correction that has the most words in common with all others; if there are several, return the
    longest."""
    counts = Counter(word for each in members for word in words_of(each.words))
    return max(members, key=lambda each: (sum(counts[word] > 1 for word in words_of(each.words)), len(each.words)))


def written_check(members: Sequence[Correction]) -> MinedCheck:
    """Return a check. It requires words that nearly all corrected answers have and no rejected answer has. It forbids
    words that nearly all rejected answers have and no corrected answer has. If there is no word to require, the check
    is a rubric for the judge, made from the corrections."""
    pairs = [(_tokens(each.rejected), _tokens(each.corrected)) for each in members if each.corrected]
    wanted = _telling([after for _, after in pairs], [before for before, _ in pairs])
    unwanted = _telling([before for before, _ in pairs], [after for _, after in pairs])
    said = {word for each in members for word in _tokens(each.words)}
    wanted = tuple(word for word in wanted if word in said or len(members) > 2)[:3]
    unwanted = tuple(word for word in unwanted if word in said)[:3]
    apart = (
        contains(each.corrected, wanted, every=True).hard > contains(each.rejected, wanted, every=True).hard
        for each in members
        if each.corrected
    )
    if wanted and not unwanted and not all(apart):  # a part of code: \b finds yaml in schema/a.yaml
        return MinedCheck(kind="regex", values=(rf"\b{re.escape(wanted[0])}\b",))
    if wanted:
        return MinedCheck(kind="contains", values=wanted, unwanted=unwanted)
    words = dict.fromkeys(each.words for each in members)
    return MinedCheck(kind="rubric", values=("The answer keeps to this: " + " / ".join(list(words)[:3]),))


def _tokens(text: str) -> frozenset[str]:
    """Return the whole words of a text in the form in which a check looks for them."""
    text = PLACEHOLDER.sub(" ", text)
    found = (match for match in _WORD.finditer(text) if not text[match.end() : match.end() + 1].isalnum())
    words = (match[0].lower().strip("-'.") for match in found)
    return frozenset(word for word in words if len(word) > 1 and word not in _COMMON)


def _telling(have: Iterable[frozenset[str]], lack: Iterable[frozenset[str]]) -> tuple[str, ...]:
    have, lack = list(have), list(lack)
    counts = Counter(word for words in have for word in words)
    absent = {word for words in lack for word in words}
    least = max(1, math.ceil(0.9 * len(have)))
    return tuple(sorted(word for word, count in counts.items() if count >= least and word not in absent))
