"""The same as `skillopt eval`: python scripts/eval_only.py --config CONFIG.yaml --skill best_skill.md"""

import sys

from skillopt.cli import main

main(["eval", *sys.argv[1:]])
