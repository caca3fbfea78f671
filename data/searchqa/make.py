"""Makes mini/{train,val,test}/items.json from the clues below, byte for byte the same each time: python make.py

Each clue has one document that answers it and four of other clues' documents around it, in SearchQA's published form:
parts divided by [DOC], a title after [TLE], a passage after [PAR]. All of it was written for this project.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

CLUES = """
This metal, liquid at room temperature, was once used in thermometers|mercury;quicksilver|Mercury (element)|Mercury, also called quicksilver, is the only metal that is liquid at standard conditions. It filled thermometers for three centuries.
In 1969 he became the first human to walk on the Moon|Neil Armstrong;Armstrong|Apollo 11|Commander Neil Armstrong stepped onto the lunar surface on 20 July 1969; Buzz Aldrin joined him nineteen minutes later.
The "Mona Lisa" hangs in this Paris museum|the Louvre;Louvre Museum|Mona Lisa|Leonardo's portrait has been on display in the Louvre in Paris since 1797, with interruptions by a theft in 1911 and by wars.
It is the longest river of South America|Amazon;Amazon River;the Amazon|Amazon basin|The Amazon crosses Peru, Colombia and Brazil and carries more water than any other river in the world.
Jane Austen's matchmaking heroine Miss Woodhouse goes by this first name|Emma|Emma (novel)|Emma Woodhouse, handsome, clever and rich, arranges other people's marriages in the novel that Austen published in 1815.
This Scottish biologist noticed in 1928 that a mould had killed his bacteria|Alexander Fleming;Fleming|Penicillin|On his return from holiday in September 1928 Alexander Fleming found a mould of the genus Penicillium on a forgotten plate.
Its capital is Ulaanbaatar|Mongolia|Ulaanbaatar|Almost half of the people of Mongolia live in its capital, Ulaanbaatar, one of the coldest capitals in the world.
This gas makes up about 78 percent of the air|nitrogen|Atmosphere of Earth|Dry air is about 78 % nitrogen, 21 % oxygen and 1 % argon by volume.
Beethoven wrote only one opera, this one|Fidelio|Beethoven's opera|Fidelio, in which Leonore frees her husband from prison, is the only opera that Ludwig van Beethoven finished.
The largest planet of the solar system|Jupiter|Giant planets|Jupiter has two and a half times the mass of all the other planets together; Saturn comes second.
In Greek myth she opened a jar and let out the evils of the world|Pandora|Pandora's box|Hesiod tells that Pandora lifted the lid of a great jar, and that only hope stayed inside.
This bird lays the largest egg of all living birds|ostrich;the ostrich|Eggs|The egg of the ostrich weighs about 1.4 kilograms, more than twenty hens' eggs together.
The Treaty that ended the First World War with Germany was signed in this palace|Versailles;Palace of Versailles|Paris Peace Conference|The treaty with Germany was signed on 28 June 1919 in the Hall of Mirrors of the Palace of Versailles.
He painted "The Starry Night" in an asylum in Saint-Remy|Vincent van Gogh;van Gogh|The Starry Night|Vincent van Gogh painted the view from his window at Saint-Remy in June 1889, from memory and by day.
It's the hardest natural mineral|diamond|Mohs scale|The mineralogist Mohs gave talc the number one and diamond, which scratches all others, the number ten.
This ship sank on her maiden voyage in April 1912|Titanic;RMS Titanic|Ocean liners|The Titanic of the White Star Line struck an iceberg on 14 April 1912 and sank in less than three hours.
The language of Brazil|Portuguese|Languages of Brazil|Almost all Brazilians speak Portuguese, which came with Cabral in 1500; about two hundred other languages survive.
In 1609 this Italian turned a telescope to the sky and soon found four moons|Galileo;Galileo Galilei|Moons of Jupiter|In January 1610 Galileo Galilei saw four small stars near Jupiter that moved with it from night to night.
A group of lions|pride;a pride|Lions|Lions are the only cats that live in groups; such a pride has related females, their cubs and a few males.
This physicist's cat is alive and dead at the same time|Schrodinger;Erwin Schrodinger;Schrödinger|Thought experiments|In 1935 Erwin Schrodinger put an imaginary cat into a box together with a flask of poison and a quantum event.
The Great Barrier Reef lies off the coast of this country|Australia|Coral reefs|The Great Barrier Reef stretches over 2,300 kilometres along the coast of Queensland in Australia.
It is the chemical symbol of gold|Au|Gold|The symbol Au comes from aurum, the Latin word for gold; silver's Ag comes from argentum.
In the tale by the Brothers Grimm this girl lets down her hair from a tower|Rapunzel|Grimms' fairy tales|A witch climbs up by the long hair of Rapunzel, until a prince learns the words.
The author of "One Hundred Years of Solitude"|Gabriel Garcia Marquez;Garcia Marquez;Gabriel García Márquez|Macondo|Gabriel Garcia Marquez let the Buendia family live and die in the invented town of Macondo.
The tallest mountain above sea level|Mount Everest;Everest|Eight-thousanders|Mount Everest, measured at 8,849 metres in 2020, stands on the border of Nepal and China.
This instrument has 88 keys|piano;the piano|Keyboards|The modern piano has 88 keys, 52 white and 36 black; Boesendorfer built some with 97.
He was the first emperor of Rome|Augustus;Octavian|Roman Empire|In 27 BC the Senate gave Octavian the name Augustus; historians call him the first emperor.
The organ that pumps blood|heart;the heart|Circulation|The human heart beats about a hundred thousand times a day and moves some seven thousand litres of blood.
This country gave the Statue of Liberty to the United States|France|Statue of Liberty|The statue by Bartholdi was a gift of France and was unveiled in New York in October 1886.
The process by which plants make sugar from light|photosynthesis|Chlorophyll|In photosynthesis green plants turn carbon dioxide and water into sugar and oxygen with the energy of light.
The detective at 221B Baker Street|Sherlock Holmes;Holmes|Baker Street|Arthur Conan Doyle let Sherlock Holmes and Doctor Watson share rooms at 221B Baker Street.
The sea between Italy and the Balkans|Adriatic Sea;the Adriatic;Adriatic|Adriatic|Venice, Split and Dubrovnik lie on the Adriatic Sea, the arm of the Mediterranean between Italy and the Balkans.
The number of strings of a violin|four;4|Violin family|The four strings of the violin are tuned in fifths to G, D, A and E.
This woman won Nobel Prizes in physics and in chemistry|Marie Curie;Curie|Nobel laureates|Marie Curie was honoured for radioactivity in 1903 and for polonium and radium in 1911.
The currency of Japan|yen;the yen|Money of Japan|The yen became the currency of Japan in 1871; its name means a round object.
The ancient city buried by Vesuvius in AD 79|Pompeii|Vesuvius|Ash and pumice buried Pompeii in the year 79; Herculaneum was lost under hot mud.
This animal is the largest that has ever lived|blue whale;the blue whale|Whales|The blue whale grows to thirty metres; its tongue alone weighs as much as an elephant.
In chess it moves in an L|knight;the knight|Chess pieces|The knight goes two squares one way and one to the side, and is the only piece that leaps over others.
The inventor of the World Wide Web|Tim Berners-Lee;Berners-Lee|World Wide Web|Tim Berners-Lee proposed a web of linked documents at CERN in March 1989.
The desert that covers much of southern Mongolia|Gobi;Gobi Desert;the Gobi|Deserts of Asia|The Gobi in southern Mongolia and northern China is a cold desert in which dinosaur eggs were first found.
The vitamin whose lack causes scurvy|vitamin C;C;ascorbic acid|Scurvy|Sailors fell ill with scurvy for want of vitamin C, until lemons and limes went on board.
This playwright wrote "A Doll's House"|Henrik Ibsen;Ibsen|A Doll's House|Nora leaves her husband at the end of the play that Henrik Ibsen wrote in Italy in 1879.
The strait between Spain and Morocco|Strait of Gibraltar;Gibraltar|Straits|The Strait of Gibraltar is fourteen kilometres wide where Spain and Morocco come nearest.
The first element of the periodic table|hydrogen|Periodic table|With one proton and one electron hydrogen stands first in the periodic table; helium follows.
The king who had six wives|Henry VIII;Henry the Eighth;King Henry VIII|Tudors|Henry VIII married Catherine, Anne, Jane, another Anne, another Catherine and one more.
The Italian city known for its leaning tower|Pisa|Leaning towers|The bell tower of Pisa began to lean in 1178, when the third floor was being built.
The layer of gas that shields Earth from ultraviolet light|ozone;ozone layer;the ozone layer|Stratosphere|Twenty kilometres up, ozone takes up most of the sun's ultraviolet light.
This composer wrote "The Four Seasons"|Antonio Vivaldi;Vivaldi|The Four Seasons|Antonio Vivaldi published his four concertos with sonnets on spring, summer, autumn and winter in 1725.
"""  # noqa: E501
SPLITS = {"train": 20, "val": 12, "test": 16}


def mixed(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def main() -> None:
    clues = [line.split("|") for line in CLUES.strip().splitlines()]
    documents = {clue[0]: f"[DOC] [TLE] {clue[2]} [PAR] {clue[3]}" for clue in clues}
    rows = []
    for question, answers, _, _ in clues:
        others = sorted((q for q in documents if q != question), key=lambda q: mixed(f"{question}/{q}"))[:4]
        shown = sorted([question, *others], key=lambda q: mixed(f"order/{question}/{q}"))
        context = " ".join(documents[q] for q in shown)
        rows.append({"question": question, "context": context, "answers": answers.split(";")})
    rows.sort(key=lambda row: mixed(str(row["question"])))
    assert len(rows) == sum(SPLITS.values()) == len({row["question"] for row in rows})
    for split, count in SPLITS.items():
        own, rows = rows[:count], rows[count:]
        folder = Path(__file__).parent / "mini" / split
        folder.mkdir(parents=True, exist_ok=True)
        items = [{"id": f"mini-{split}-{n:02d}", **row} for n, row in enumerate(own)]
        (folder / "items.json").write_text(json.dumps(items, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
