"""The same as `skillopt train`: python scripts/train.py --config configs/searchqa/default.yaml"""

import sys

from skillopt.cli import main

main(["train", *sys.argv[1:]])
