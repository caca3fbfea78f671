"""Write {train,val,test}/items.json from tickets.py: `python data/quickstart/make.py` gives the same bytes every time.

Every sub-topic is split 4 / 2 / 4, so each split sees each kind of ticket but no sentence twice; order and split
follow a seeded hash of the text. The script refuses label words inside tickets and near copies across splits.
"""

import hashlib
import itertools
import json
import re
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))

from tickets import TICKETS  # noqa: E402

SEED = 42
SPLITS = {"train": 4, "val": 2, "test": 4}  # tickets of each sub-topic
MAX_OVERLAP = 0.6
QUEUES = {  # house rule: topic -> queue. The colours mean nothing outside the house.
    "login": "red",
    "payment": "blue",
    "delivery": "green",
    "defect": "yellow",
    "suggestion": "black",
    "cancellation": "white",
}

Item = dict[str, str | list[str]]


def seeded(text: str) -> str:
    """A sort key that depends on nothing but the seed and the text."""
    return hashlib.sha256(f"{SEED}:{text}".encode()).hexdigest()


def split() -> dict[str, list[Item]]:
    """The items of each split, in a seeded order that mixes the topics."""
    rows: dict[str, list[tuple[str, str]]] = {name: [] for name in SPLITS}
    for topic, groups in TICKETS.items():
        for texts in groups.values():
            assert len(texts) == sum(SPLITS.values()), f"{topic}: a sub-topic has {len(texts)} tickets"
            queue = iter(sorted(texts, key=seeded))
            for name, count in SPLITS.items():
                rows[name] += [(text, topic) for text in itertools.islice(queue, count)]
    return {
        name: [
            {"id": f"{name}-{n:03}", "question": text, "answers": [QUEUES[topic]], "type": topic}
            for n, (text, topic) in enumerate(sorted(pairs, key=lambda pair: seeded(pair[0])), start=1)
        ]
        for name, pairs in rows.items()
    }


def features(text: str) -> tuple[set[str], set[str]]:
    """Words and character 4-grams of the lower-cased text without punctuation."""
    words = re.findall(r"[a-z0-9]+", text.lower())
    line = " ".join(words)
    return set(words), {line[i : i + 4] for i in range(len(line) - 3)}


def jaccard(a: set[str], b: set[str]) -> float:
    return len(a & b) / len(a | b)


def worst_overlap(splits: dict[str, list[Item]]) -> tuple[float, float, str]:
    """The highest word and 4-gram overlap of two tickets from different splits, and the closest pair."""
    seen = {name: [(str(i["question"]), features(str(i["question"]))) for i in items] for name, items in splits.items()}
    words, grams, closest = 0.0, 0.0, ""
    for one, other in itertools.combinations(seen.values(), 2):
        for (text, a), (twin, b) in itertools.product(one, other):
            words = max(words, jaccard(a[0], b[0]))
            gram = jaccard(a[1], b[1])
            if gram > grams:
                grams, closest = gram, f"{text!r} / {twin!r}"
    return words, grams, closest


def check(splits: dict[str, list[Item]]) -> str:
    """Refuse an unbalanced, leaking or overlapping dataset; return one line that says what was found."""
    texts = [str(item["question"]) for items in splits.values() for item in items]
    assert len(texts) == len(set(texts)), "a ticket occurs twice"
    for text in texts:
        assert 12 <= len(text.split()) <= 35, f"length: {text}"
        assert not features(text)[0] & set(QUEUES.values()), f"a queue's name in the ticket: {text}"
    for name, items in splits.items():
        counts = {topic: sum(item["type"] == topic for item in items) for topic in QUEUES}
        assert set(counts.values()) == {SPLITS[name] * 5}, f"{name} is unbalanced: {counts}"
    words, grams, closest = worst_overlap(splits)
    assert max(words, grams) < MAX_OVERLAP, f"near copies across splits: {closest}"
    sizes = ", ".join(f"{len(items)} {name}" for name, items in splits.items())
    return f"{sizes}; highest overlap across splits: words {words:.2f}, 4-grams {grams:.2f} ({closest})"


def main() -> None:
    splits = split()
    print(check(splits))
    for name, items in splits.items():
        path = HERE / name / "items.json"
        path.parent.mkdir(exist_ok=True)
        body = ",\n".join("  " + json.dumps(item, ensure_ascii=False) for item in items)
        path.write_bytes(f"[\n{body}\n]\n".encode())


if __name__ == "__main__":
    main()
