"""Makes mini/{train,val,test}/items.json from the questions below: python make.py

Written for this project in LiveMathematicianBench's form: a statement with five choices, one of which is the strongest
true one. The first choice below is the right one; its published place is drawn by a hash.
"""

from __future__ import annotations

import hashlib
import json
import string
from pathlib import Path

QUESTIONS = """
Inequality or Bound|Let n be a positive integer. Which bound on the number of edges of a simple planar graph on n >= 3 vertices is best possible?|at most 3n - 6|at most 3n - 3|at most 2n - 4|at most 4n - 8|at most n log n
Existence|A continuous map of a closed disc in the plane to itself|has at least one fixed point|has exactly one fixed point|has two fixed points or none|need not have a fixed point|has a dense orbit somewhere
Universal|Every finite group whose order is the square of a prime is|abelian|cyclic|simple|perfect|trivial
Uniqueness|A continuous real function on [0,1] all of whose moments (integrals against x^n, n = 0, 1, 2, ...) vanish is|zero everywhere|zero almost nowhere|zero only at 0 and 1|zero on a proper interval|some odd polynomial
Implication|If a series of real numbers converges absolutely, then each of its rearrangements|converges to the same sum|converges to any given sum|converges or oscillates|diverges for some orders|converges conditionally
Asymptotic or Limit|As n grows, the n-th prime is asymptotic to|n log n|n^2|n log log n|n sqrt(n)|2^n
Biconditional or Equivalence|A metric space is compact if and only if it is|complete and totally bounded|closed and bounded|complete and separable|bounded and connected|closed and separable
Classification or Bijection|Up to isomorphism, how many abelian groups of order 72 are there?|6|4|5|8|12
Inequality or Bound|For real vectors x and y, the absolute value of their inner product is at most|the product of their norms|the sum of their norms|half of their norms' sum|the smaller norm squared|the larger norm alone
Universal|Every bounded monotone sequence of real numbers|converges|is eventually constant|has finitely many values|diverges to infinity|is periodic
Existence|Between any two different real numbers there is|a rational number|exactly one rational|only irrationals|no algebraic number|a largest rational
Implication|If a differentiable real function on an interval has derivative zero everywhere, then it is|constant|zero|linear but not constant|unbounded|periodic and not constant
Asymptotic or Limit|The limit of (1 + 1/n)^n as n tends to infinity is|e|1|pi|infinity|2
Biconditional or Equivalence|An integer n > 1 is prime if and only if (n - 1)! is congruent modulo n to|-1|0|1|n - 2|2
Uniqueness|The factorisation of an integer greater than 1 into primes is unique|up to the order of the factors|without any condition|up to one factor of two|for odd integers only|for square-free ones only
Classification or Bijection|How many regular convex polyhedra are there in three dimensions?|5|4|6|7|13
Universal|Every finite integral domain is|a field|a local ring with nilpotents|a matrix ring|of order two|of characteristic zero
Inequality or Bound|For non-negative reals, the geometric mean is, compared with the arithmetic mean,|at most as large|at least as large|always equal|always smaller by one|never comparable
Existence|Every vector space, given the axiom of choice,|has a basis|has a finite basis|has a unique basis|has a countable basis|has an inner product
Implication|If a complex function is bounded and holomorphic on the whole plane, it is|constant|a polynomial of degree one|an exponential|zero somewhere|injective
Asymptotic or Limit|The sum of the reciprocals of the squares of the positive integers is|pi^2 / 6|pi / 4|1|2|log 2
Biconditional or Equivalence|A square real matrix is invertible if and only if its determinant is|not zero|positive|one|an integer|negative
Uniqueness|Two polynomials of degree at most n over a field that agree at n + 1 different points are|equal|proportional|coprime|both constant|both monic
Classification or Bijection|The set of rational numbers can be mapped one to one onto|the integers|the real numbers|the irrationals|the Cantor set|the power set of the integers
"""  # noqa: E501
SPLITS = {"train": 10, "val": 6, "test": 8}


def mixed(text: str) -> int:
    return int(hashlib.sha256(text.encode()).hexdigest(), 16)


def main() -> None:
    rows = []
    for line in QUESTIONS.strip().splitlines():
        kind, question, right, *wrong = line.split("|")
        place = mixed(f"place/{question}") % 5
        choices = [*wrong[:place], right, *wrong[place:]]
        rows.append({"question": question, "choices": choices, "label": string.ascii_uppercase[place], "type": kind})
    rows.sort(key=lambda row: mixed(str(row["question"])))
    assert len(rows) == sum(SPLITS.values())
    for split, count in SPLITS.items():
        own, rows = rows[:count], rows[count:]
        folder = Path(__file__).parent / "mini" / split
        folder.mkdir(parents=True, exist_ok=True)
        items = [{"id": f"mini-{split}-{n:02d}", **row} for n, row in enumerate(own)]
        (folder / "items.json").write_text(json.dumps(items, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
