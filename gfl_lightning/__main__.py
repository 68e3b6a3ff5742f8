"""The command line. What needs no torch is answered without importing it."""

import sys

from gfl_lightning import starter

USAGE = """usage: python -m gfl_lightning COMMAND [--config FILE] [options]

Graph federated learning with hidden representation sharing (GFL-APPNP) on PyTorch Lightning.

commands:
  fit        train in communication rounds, test the best model, write summary.json
  validate   metrics of a checkpoint on the validation samples
  test       metrics of a checkpoint on the test samples
  predict    write predictions.csv: predicted label and class probabilities of every sample
  init DIR   write a starter: a commented configuration and two small tables
  reproduce  run the paper's experiments and show them beside the published numbers

  python -m gfl_lightning fit --config configs/paper/dnc_synthetic.yaml
  python -m gfl_lightning fit --print_config          every option with its default
  python -m gfl_lightning fit --model.help GFL        options of a model (GFL, Central, LocalMLPs)
  python -m gfl_lightning fit --data.help DNC         options of a data set (SNC, SC, ClientTables, …)
  python -m gfl_lightning COMMAND --help              options of the trainer
  python -m gfl_lightning reproduce --help            the studies and their options
"""


def main() -> None:
    """Answer a call for help, or run a command."""
    if len(sys.argv) < 2 or sys.argv[1] in ("-h", "--help"):
        print(USAGE, end="")
        return
    if sys.argv[1] == "init":
        starter.main(sys.argv[2:])
        return
    if sys.argv[1] == "reproduce":
        from gfl_lightning.studies import command  # noqa: PLC0415

        command.main(sys.argv[2:])
        return
    from gfl_lightning.lit import cli  # noqa: PLC0415  # seconds of imports that help does not need

    cli.main()


if __name__ == "__main__":
    main()
