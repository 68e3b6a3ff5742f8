"""Lightning callbacks of gfl_lightning, named in a YAML as ``callbacks.<Class>``."""

from callbacks.wandb_rounds import WandbRounds

__all__ = ["WandbRounds"]
