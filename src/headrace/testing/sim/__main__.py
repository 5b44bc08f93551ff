"""Run seeds: `python -m headrace.testing.sim --seed 7 -v`, or `--seeds 1000` on all cores."""

from __future__ import annotations

import sys

from headrace.testing.sim.many import main

sys.exit(main())
