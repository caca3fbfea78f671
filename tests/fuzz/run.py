"""`make fuzz`: see campaign.py."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

from campaign import main

if __name__ == "__main__":
    main()
