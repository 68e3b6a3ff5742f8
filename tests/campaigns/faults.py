"""Faults: signals at random moments, a process killed with TMPDIR elsewhere, a disk that is full; then a resume."""

from __future__ import annotations

import csv
import io
import json
import os
import pickle
import random
import resource
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import chdir, contextmanager, redirect_stderr, redirect_stdout, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, NoReturn

from campaigns.campaign import Campaign, Outcome

from gfl_lightning.command_line import EXIT_BAD_INPUT
from gfl_lightning.lit import cli
from gfl_lightning.privacy import noise_key
from gfl_lightning.sealed_files import read_sealed

ROUNDS = 150
TRACEBACK = 70
FIT = ["--data.num_clients=60", "--data.num_features=10", f"--trainer.max_steps={ROUNDS}", "--report=false"]
FIT += ["--trainer.enable_progress_bar=false", "--trainer.val_check_interval=10", "--trainer.default_root_dir=runs"]
FIT += ["--trainer.logger=CSVLogger", "--trainer.logger.save_dir=runs", "--trainer.logger.version=fixed"]
SAVING = ["--trainer.callbacks+=ModelCheckpoint", "--trainer.callbacks.every_n_train_steps=10"]
SAVING += ["--trainer.callbacks.filename=last", "--trainer.callbacks.enable_version_counter=false"]
STOPPING = [
    "--trainer.callbacks+=EarlyStopping",
    "--trainer.callbacks.monitor=val_loss",
    "--trainer.callbacks.patience=4",
]
SMALL, ROWS, RATE = "--model.encoder.hidden=[8]", "--data=SC", "--model.lr_scheduler"
TORCHS = "torch.optim.lr_scheduler"
SIDES = ("hidden", "jacobian", "update", "validation")
NOISE = [f"--model.protection.{one}.{name}={value}" for one in SIDES for name, value in (("std", 40), ("clip", 1))]
ONCE = ["--model.records=RandomisedOnce"]
ONCE += ['--model.records.features={"class_path": "gfl_lightning.PrivUnit", "init_args": {"dimensions": 8}}']
PRIVATELY = ["--trainer.callbacks+=EarlyStopping", "--trainer.callbacks.monitor=private_val_loss"]
CYCLE = [f"{RATE}={TORCHS}.OneCycleLR", f"{RATE}.max_lr=1", f"{RATE}.total_steps=500"]
WARM = [f"{RATE}={TORCHS}.CosineAnnealingWarmRestarts", f"{RATE}.T_0=9"]
COSINE = [f"{RATE}={TORCHS}.CosineAnnealingLR", f"{RATE}.T_max=40"]
CYCLIC = [f"{RATE}={TORCHS}.CyclicLR", f"{RATE}.base_lr=0.1", f"{RATE}.max_lr=1"]
MIX = ["--model.personal=OwnLevel", "--model.mix.fedavg=true", "--model.mix.steps=[2]"]
LABELS = ["--model.records=SharedLabels", "--model.personal=OwnSlopes", "--model.aggregator=SGC"]
GATE = ["--model.personal=Gate", "--model.participation.train=0.5"]
VARIANTS: list[list[str]] = [
    [SMALL],
    [SMALL, *STOPPING],
    [SMALL, f"{RATE}={TORCHS}.ReduceLROnPlateau", f"{RATE}.patience=0"],
    [SMALL, "--model.participation.share=0.5", "--model.server=FedAdam", *STOPPING],
    [SMALL, "--model.aggregator=LearnablePolynomial", "--trainer.callbacks+=WeightAveraging"],
    [SMALL, "--model.noise_seed=1", *NOISE],
    [SMALL, *NOISE, "--model.guarantee.max_epsilon=30", *PRIVATELY, "--trainer.callbacks.patience=3"],
    [ROWS, SMALL, *MIX, f"{RATE}={TORCHS}.StepLR", f"{RATE}.step_size=7"],
    ["--model.aggregator=ChosenAPPNP", "--model.encoder=Linear", *ONCE, *COSINE],
    [*LABELS, "--model.server=Momentum", *CYCLE, *STOPPING],
    [ROWS, SMALL, *GATE, *WARM],
    ["--model=Central", *CYCLIC, *STOPPING],
    [ROWS, "--model=LocalMLPs", f"{RATE}={TORCHS}.ExponentialLR", f"{RATE}.gamma=0.99"],
]
FOLDER = Path("runs/gfl/fixed")


def in_a_child(
    arguments: list[str], disturb: Callable[[int], None], before: Callable[[], object] = lambda: None
) -> tuple[int, str]:
    """Run the command line in a forked process, disturbed from outside: its exit status and what it said."""
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        _be_the_child(arguments, before, write)
    os.close(write)
    disturb(child)
    with os.fdopen(read, encoding="utf-8") as stream:
        said = stream.read()
    return os.waitpid(child, 0)[1], said


def _be_the_child(arguments: list[str], before: Callable[[], object], write: int) -> NoReturn:
    """Run the command line, tell what it says on standard error, and leave by its exit code; 70 for an exception."""
    code: Any = TRACEBACK
    err = io.StringIO()
    try:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        before()
        sys.argv = ["gfl_lightning", *arguments]
        with redirect_stdout(io.StringIO()), redirect_stderr(err):
            cli.main()
        code = 0
    except SystemExit as stop:
        code = stop.code or 0
    except BaseException as escaped:
        err.write(f"Traceback {type(escaped).__name__}: {escaped}")
    finally:
        os.write(write, err.getvalue().encode()[-4000:])
        os._exit(int(code))


def with_a_known_key() -> None:
    """Let noise that is drawn from a secret be the same in every run, so that runs can be compared."""
    noise_key.secrets.token_bytes = lambda size: bytes(range(size))  # type: ignore[attr-defined, misc, assignment]


def result() -> dict[str, Any]:
    """What a run has left: summary without times, log, scheduler and stopping callbacks.

    Numbers of the summary have 12 digits: the ε of a plan that ended early is a sum that a resume splits in two.
    """
    text = (FOLDER / "summary.json").read_text()
    summary = json.loads(text, parse_float=lambda number: f"{float(number):.12g}") | {"seconds": 0}
    with (FOLDER / "metrics.csv").open(newline="") as stream:
        rows = [{name: cell for name, cell in row.items() if cell} for row in csv.DictReader(stream)]
    last = read_sealed(FOLDER / "checkpoints/last.ckpt", "last")
    kept = {name: {k: str(v) for k, v in state.items()} for name, state in last["callbacks"].items() if "Early" in name}
    weights = {name: weight.tolist() for name, weight in last["state_dict"].items()}
    schedulers = [{k: str(v) for k, v in state.items()} for state in last["lr_schedulers"]]
    return {"summary": summary, "rows": rows, "callbacks": kept, "weights": weights, "schedulers": schedulers}


@dataclass
class Signals(Campaign):
    """Fits that are interrupted at random moments, once or several times, and resumed: they end as a whole one does."""

    numbers: tuple[int, ...] = (signal.SIGINT, signal.SIGTERM, signal.SIGKILL)
    elsewhere: str | None = None
    kills: ClassVar[bool] = True

    def __post_init__(self) -> None:
        self.name = "signals at random moments, resume"

    def whole(self, number: int) -> tuple[float, dict[str, Any]]:
        """How long the whole run of a variant takes and what it leaves, to compare with; made once for all batches."""
        folder = self.folder / f"whole {number}"
        kept = folder / "result.pickle"
        if not kept.exists():
            folder.mkdir(exist_ok=True)
            with chdir(folder):
                started = time.monotonic()
                status, said = in_a_child(
                    ["fit", *VARIANTS[number], *FIT, *SAVING], lambda child: None, with_a_known_key
                )
                assert status == 0, said
                kept.write_bytes(pickle.dumps((time.monotonic() - started, result())))
        found: tuple[float, dict[str, Any]] = pickle.loads(kept.read_bytes())
        return found

    def run(self, draw: random.Random) -> Outcome:
        """One case."""
        number = draw.randrange(len(VARIANTS))
        arguments, last = ["fit", *VARIANTS[number], *FIT, *SAVING], FOLDER / "checkpoints/last.ckpt"
        seconds, whole = self.whole(number)
        if self.elsewhere is not None:
            os.environ["TMPDIR"] = self.elsewhere
        for _ in range(draw.randint(1, 3)):
            sent, after = draw.choice(self.numbers), draw.random() * seconds

            def disturb(child: int, sent: int = sent, after: float = after) -> None:
                time.sleep(after)
                os.kill(child, sent)

            going = [*arguments, f"--ckpt_path={last}"] if last.exists() else arguments
            status, said = in_a_child(going, disturb, with_a_known_key)
            if "Traceback" in said:
                return Outcome("traceback", said[-200:])
            if last.exists():
                read_sealed(last, "last.ckpt")
            else:
                os.system("rm -rf runs")
        status, said = in_a_child(
            [*arguments, f"--ckpt_path={last}"] if last.exists() else arguments, lambda child: None, with_a_known_key
        )
        if status != 0:
            return Outcome("worse", f"not resumed: {said[-200:]}")
        found = result()
        different = [name for name in whole if found[name] != whole[name]]
        return Outcome("worse", f"variant {number} differs in {different}") if different else Outcome("ran")


@dataclass
class Kills(Signals):
    """Processes killed while TMPDIR is on another file system."""

    def __post_init__(self) -> None:
        self.name, self.numbers, self.elsewhere = "kill −9, TMPDIR elsewhere", (signal.SIGKILL,), "/dev/shm"


SIZES = ("4k", "16k", "64k", "128k", "256k", "512k", "1m")
LIMITS = (0, 100, 1000, 3000, 10_000, 20_000, 40_000)


@contextmanager
def disk(folder: Path, size: str) -> Iterator[Path]:
    """A small file system of its own."""
    folder.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", folder], check=True, capture_output=True)
    try:
        yield folder
    finally:
        subprocess.run(["umount", "-l", folder], check=True, capture_output=True)


def may_mount(folder: Path) -> bool:
    """Whether this process may have file systems of its own."""
    try:
        with disk(folder, "4k"):
            return True
    except (OSError, subprocess.CalledProcessError):
        return False
    finally:
        folder.rmdir()


@dataclass
class FullDisks(Campaign):
    """Fits on a small disk, or whose files may only grow so large, or with a full disk as TMPDIR alone.

    One sentence, nothing half-written, and the checkpoints that are there are whole; a full TMPDIR harms no fit.
    """

    def __post_init__(self) -> None:
        self.mounts = may_mount(self.folder / "may mount")
        self.name = f"full disks ({'tmpfs, ' if self.mounts else ''}limit on file size)"

    def run(self, draw: random.Random) -> Outcome:
        """One case."""
        what = draw.choice(["folder", "folder", "TMPDIR", "limit"])
        size, limit = draw.choice(SIZES), draw.choice(LIMITS)
        if what == "limit" or not self.mounts:
            return self._fit(
                lambda: (
                    signal.signal(signal.SIGXFSZ, signal.SIG_IGN),
                    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit)),
                )
            )
        with disk(Path("runs" if what == "folder" else "elsewhere").absolute(), size) as small:
            if what == "folder":
                return self._fit(lambda: None)
            with suppress(OSError):
                (small / "full").write_bytes(bytes(2 << 20))
            outcome = self._fit(lambda: setattr(tempfile, "tempdir", str(small)))
            return outcome if outcome.kind != "refused" else Outcome("worse", "a full TMPDIR ended a fit")

    def _fit(self, before: Callable[[], object]) -> Outcome:
        status, said = in_a_child(["fit", SMALL, *FIT, *SAVING], lambda child: None, before)
        code = os.waitstatus_to_exitcode(status)
        for file in Path("runs").rglob("*.ckpt"):
            read_sealed(file, file.name)
        left = [file.name for file in Path("runs").rglob(".*") if file.name[1:2].isdigit()]
        if left:
            return Outcome("worse", f"half-written {left}")
        if code == 0:
            return Outcome("ran")
        if code == TRACEBACK:
            return Outcome("traceback", said[-200:])
        sentence = code == EXIT_BAD_INPUT and said.count("error: ") == 1
        return Outcome("refused") if sentence else Outcome("worse", f"exit code {code}: {said[-200:]}")
