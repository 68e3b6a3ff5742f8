"""Lightning callbacks of gfl_lightning, named in a YAML as ``callbacks.<Class>``."""
