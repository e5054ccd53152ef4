# SPDX-License-Identifier: MIT
"""The shipped plan without one step, to see what fails then."""
import pathlib

import yaml

PLAN = pathlib.Path(__file__).resolve().parents[2] / "config/plans/geforce-p2p.yaml"


def shipped():
    return yaml.safe_load(PLAN.read_text())


ROLES = ("goal", "gate", "upkeep", "requires", "alternative")


def name_of(step):
    return next(step[role] for role in ROLES if role in step)


def without(plan, name):
    """The plan without a step, and without references to it."""
    steps = [dict(step) for step in plan["steps"] if name_of(step) != name]
    for step in steps:
        for key in ("after", "needs", "where", "spares"):
            if name in step.get(key, []):
                step[key] = [other for other in step[key] if other != name]
    return {**plan, "steps": steps}
