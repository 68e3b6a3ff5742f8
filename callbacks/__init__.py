"""Lightning callbacks of gfl_lightning, named in a YAML as ``callbacks.<Class>``."""

from callbacks.dp_noise import DPNoise
from callbacks.dp_sgd import DPSGD
from callbacks.privacy_budget import PrivacyBudget
from callbacks.randomise_once import RandomiseOnce
from callbacks.wandb_rounds import WandbRounds

__all__ = ["DPSGD", "DPNoise", "PrivacyBudget", "RandomiseOnce", "WandbRounds"]
