"""Train a skill on a list of dicts with a custom scorer: python examples/custom_scorer/train.py --help"""

import argparse

import skillopt

CHANGES = [
    (area, change)
    for area in ("parser", "docs", "network", "login")
    for change in (
        "Fixed a crash that happened when the file was empty.",
        "We now retry three times before giving up on the connection.",
        "Removed the option that nobody has used since the last release.",
        "Added a test that checks what happens with very long names.",
        "The error message now says which line of the file was wrong.",
        "Updated the copyright year everywhere.",
    )
]
TASKS = [{"question": f"Part of the program: {area}\nChange: {text}", "area": area} for area, text in CHANGES]


def house_rules(item, output):
    """Score a subject line: the share of the rules that it follows, and the rules that it breaks."""
    broken = []
    if not output.startswith(f"{item.area}: "):
        broken.append("the line must begin with the part of the program and a colon")
    if len(output.strip()) > 50:
        broken.append("the line must not be longer than fifty characters")
    if output.strip().endswith("."):
        broken.append("the line must not end with a full stop")
    if "\n" in output.strip():
        broken.append("there must be one line and nothing else")
    return 1 - len(broken) / 4, "; ".join(broken)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--target_model", default="local:qwen2.5-coder-0.5b")
    parser.add_argument("--optimizer_model", default="local:qwen2.5-coder-1.5b")
    parser.add_argument("--vllm_url", default="")
    parser.add_argument("--output_root", default="outputs")
    chosen = vars(parser.parse_args())
    result = skillopt.train(
        tasks=TASKS,
        scorer=house_rules,
        skill=skillopt.Skill("Write the subject line of a commit for the change that you are told.\n"),
        benchmark="commits",
        metric="soft",
        num_epochs=2,
        batch_size=12,
        target_max_tokens=80,
        progress=True,
        **chosen,
    )
    print(result.best_skill.text)
    print(result.scores, result.path)


if __name__ == "__main__":
    main()
