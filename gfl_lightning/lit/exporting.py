"""``python -m gfl_lightning export``: of a private run, what may leave.

A run's checkpoints and its summary are the experimenter's own: they hold exact losses, everybody's representations, the
server's memory and what the tables told. An exported file holds the weights, the parts that read them, and ε, δ, unit
and adversary. It is made new of these; nothing is left out of a copy.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch

from gfl_lightning.checks import InputError, require
from gfl_lightning.command_line import Parser, answered
from gfl_lightning.engine.best import Best
from gfl_lightning.lit.checkpoint_layout import require_layout, shapes_of
from gfl_lightning.lit.gfl import GFL
from gfl_lightning.lit.options import MODULE, rebuilt
from gfl_lightning.sealed_files import read_sealed, write_sealed

PARTS = ("num_features", "num_classes", "encoder", "aggregator", "estimator", "personal", "records")
"""The options that say how weights predict; a reader of the file has defaults in place of all others."""
ABOUT = (
    "Write what may leave of a private run: weights, the parts that read them, and ε, δ, unit and adversary. Its "
    "checkpoints and its summary stay with the experimenter: they hold exact losses and everybody's representations."
)
TOLD: dict[str, tuple[type, ...]] = {
    "epsilon": (int, float),
    "delta": (int, float),
    "unit": (str,),
    "adversary": (str,),
}


def export(checkpoint: str | Path, out: str | Path) -> dict[str, Any]:
    """Write what may leave of a checkpoint of a private run; the privacy that the file states.

    A run that promises nothing is refused with the reason, and so is one whose weights were chosen by exact losses.
    `predict`, `test` and `load_from_checkpoint` take the file; resuming a fit from it does not work.
    """
    file = Path(out)
    require(not file.exists(), "out", "be a file that does not exist yet", str(out))
    held = read_sealed(str(checkpoint), "ckpt_path")
    require_layout(held, "ckpt_path")
    privacy = _promised(held, str(checkpoint))
    chosen = {"aggregator": held["chosen"]} if "chosen" in held else {}
    options = held["hyper_parameters"] | chosen
    missing = [name for name in PARTS if name not in options]
    require(not missing, "ckpt_path", "hold every option that reads its weights", f"none of {', '.join(missing)}")
    model = GFL(**rebuilt(GFL, {name: options[name] for name in PARTS} | _defaults(options)))
    theirs, ours = shapes_of(held["state_dict"]), shapes_of(model.state_dict())
    require(theirs == ours, "ckpt_path", f"hold weights of its own options {ours}", theirs)
    weights = {name: held["state_dict"][name].detach().clone() for name in ours}
    made: dict[str, Any] = {
        "global_step": 0,
        "pytorch-lightning_version": version("pytorch-lightning"),
        "state_dict": weights,
        "loops": {"fit_loop": {"rounds": 0}},
        "hyper_parameters": dict(model.hparams),
        "rounds": {
            "best": vars(Best()),
            "totals": {},
            "seconds": 0.0,
            "metrics": {},
            "curve": torch.empty(0, 2, dtype=torch.float64),
            "progress": {},
            "scheduler": {},
            "stopped": None,
        },
        "privacy": privacy,
    }
    write_sealed(made, file)
    return privacy


def _promised(held: dict[str, Any], name: str) -> dict[str, Any]:
    """ε, δ, unit and adversary of a checkpoint, which must be finite and cover how its weights were chosen."""
    promise = held.get("privacy")
    if not isinstance(promise, dict) or not all(type(promise.get(key)) in kinds for key, kinds in TOLD.items()):
        raise InputError(
            f"ckpt_path must be a checkpoint of a run with a privacy account, got {name!r}, which has none."
        )
    outside, gaps = promise.get("outside", []), promise.get("gaps", [])
    require(isinstance(outside, list) and isinstance(gaps, list), "ckpt_path", "list what its promise leaves out", name)
    why = ", ".join(map(str, gaps)) or "no reason is stored"
    finite = math.isfinite(promise["epsilon"])
    require(finite, "ckpt_path", f"be of a run with a finite epsilon (unprotected: {why})", promise["epsilon"])
    inside = "be of a whole run whose weights were chosen inside its guarantee"
    rule = f"{inside} (selection: inside, no ModelCheckpoint on a metric)"
    require(not outside, "ckpt_path", rule, ", ".join(map(str, outside)))
    return {key: promise[key] for key in TOLD}


def _defaults(options: dict[str, Any]) -> dict[str, Any]:
    """What a module has for every option that is not exported."""
    fresh = GFL(options["num_features"], options["num_classes"]).hparams
    return {name: value for name, value in fresh.items() if name not in (*PARTS, MODULE)}


def main(arguments: Sequence[str]) -> None:
    """Export one checkpoint and say what was promised of it."""
    parser = Parser(prog="python -m gfl_lightning export", description=ABOUT)
    checkpoint = "a checkpoint of a private run, such as best.ckpt"
    parser.add_argument("--ckpt_path", required=True, metavar="FILE", help=checkpoint)
    parser.add_argument("--out", required=True, metavar="FILE", help="the file to write")
    with answered():
        given = parser.parse_args(list(arguments))
        privacy = export(given.ckpt_path, given.out)
    print(f"{given.out}: weights, ε = {privacy['epsilon']:.4g}, δ = {privacy['delta']:g}; unit: {privacy['unit']}")
    print(f"adversary: {privacy['adversary']}")
