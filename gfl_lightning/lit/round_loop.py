"""The fit loop of communication rounds: all use of Lightning's protected loops.

A fit is one epoch whose batches are rounds. `global_step` counts rounds; `max_steps`, `max_time`, `limit_train_batches`
and `fast_dev_run` limit them; a scheduler of either interval steps once a round; a validation event (the hooks that
`ModelCheckpoint` and `EarlyStopping` act on) comes every `val_check_interval` rounds, after the last one, and reuses
the metrics that the round computed.
"""

from __future__ import annotations

import copy
from typing import Any

import torch
from pytorch_lightning.callbacks import Callback, Checkpoint, ProgressBar
from pytorch_lightning.loops.fit_loop import _FitLoop
from pytorch_lightning.trainer import call
from pytorch_lightning.utilities.exceptions import SIGTERMException

from gfl_lightning.lit.refusals import require_an_end
from gfl_lightning.lit.round_module import RoundModule, planned_rounds

OF_EVENTS = ("callbacks", "optimizer_states", "lr_schedulers")


class RoundLoop(_FitLoop):
    """Runs rounds until a limit is reached; one iteration is one round."""

    trainer: Any  # Lightning sets some of its attributes late, unseen by type checkers
    before_the_end: dict[str, Any]

    @property
    def done(self) -> bool:
        """Whether a limit on rounds is reached, the module allows no more, or a callback asked to stop and may."""
        module = self.trainer.lightning_module
        if self.epoch_loop.global_step >= self.max_batches or not module.may_go_on:
            return True
        return bool(self.trainer.should_stop and self._can_stop_early)

    @property
    def skip(self) -> bool:
        """Whether there is nothing to run at all."""
        return self.epoch_loop.global_step >= self.max_batches

    def setup_data(self) -> None:
        """Count the rounds: the data are the module's, and a loader would only deliver round numbers."""
        self.max_batches = planned_rounds(self.trainer)

    def run(self) -> None:
        """Rounds, between the hooks of one training epoch."""
        trainer = self.trainer
        self.setup_data()
        require_an_end(trainer, trainer.lightning_module)
        self.before_the_end = {}
        trainer.lightning_module.begin()
        if self.skip:
            trainer.lightning_module.end_rounds()
            return
        torch.set_grad_enabled(True)
        self._continue_after_restart()
        trainer.validating = True
        self.epoch_loop.val_loop.setup_data()
        trainer.training = True
        self.on_run_start()
        self._hook("on_train_epoch_start")
        while not self.done:
            self.advance()
            if trainer.received_sigterm:
                raise SIGTERMException
        trainer.lightning_module.end_rounds()
        trainer._logger_connector.epoch_end_reached()
        self._hook("on_train_epoch_end")
        trainer._logger_connector.on_epoch_end()
        trainer._logger_connector.update_train_epoch_metrics()
        self._restarting = False
        self.on_run_end()

    def state_dict(self, destination: dict[str, Any] | None = None, prefix: str = "") -> dict[str, Any]:
        """All that the loops have to keep: every counter of Lightning's is a number of rounds."""
        return {"rounds": self.epoch_loop.global_step}

    def load_state_dict(self, state_dict: dict[str, Any], prefix: str = "") -> None:
        """Go on after so many rounds."""
        for count in vars(self.epoch_loop.automatic_optimization.optim_progress.optimizer.step).values():
            count.ready = count.completed = state_dict["rounds"]
        self.restarting = True

    def advance(self) -> None:
        """One round with its hooks, its metrics, and a validation event if one is due."""
        trainer, progress, connector = self.trainer, self.epoch_loop.batch_progress, self.trainer._logger_connector
        module = trainer.lightning_module
        assert isinstance(module, RoundModule)
        number = progress.current.ready
        progress.is_last_batch = number + 1 >= self.max_batches
        progress.increment_ready()
        connector.on_batch_start(number)
        self.epoch_loop._results.batch_size = 1
        self._hook("on_train_batch_start", number, number)
        progress.increment_started()
        output = call._call_lightning_module_hook(trainer, "training_step", number, number)
        self._count_step()
        progress.increment_processed()
        self._publish(module.round_metrics)
        self._call(self._others, "on_train_batch_end", output, number, number)
        call._call_lightning_module_hook(trainer, "on_train_batch_end", output, number, number)
        connector.on_batch_end()
        progress.increment_completed()
        if connector.should_update_logs or trainer.fast_dev_run:
            logged_by_others = connector.metrics["log"] if self.epoch_loop._results else {}
            self._log({**logged_by_others, **module.round_metrics})
        self.epoch_loop._batches_that_stepped += 1
        if self._validation_is_due():
            self._validate(module)
        progress.is_last_batch = False  # else they would wait for a validation event that is over
        self._call(self._savers, "on_train_batch_end", output, number, number)

    @property
    def _savers(self) -> list[Callback]:
        """The callbacks that write checkpoints: they come last in a round, so that a checkpoint holds all of it."""
        return [callback for callback in self.trainer.callbacks if isinstance(callback, Checkpoint)]

    @property
    def _others(self) -> list[Callback]:
        return [callback for callback in self.trainer.callbacks if not isinstance(callback, Checkpoint)]

    def _count_step(self) -> None:
        """Move `global_step` and the schedulers by one round; the optimizer only carries the clients' rate."""
        step = self.epoch_loop.automatic_optimization.optim_progress.optimizer.step
        step.increment_ready()
        step.increment_completed()
        if self.trainer.lr_scheduler_configs:
            self.trainer.optimizers[0].step()
            for interval in ("step", "epoch"):
                self.epoch_loop.update_lr_schedulers(interval, update_plateau_schedulers=False)

    def _validation_is_due(self) -> bool:
        """Whether the interval has passed, or this is the last round.

        An event that only comes because the fit ends is none that a longer fit would have: what it changes in callbacks
        and schedulers is not for a checkpoint, from which such a fit goes on.
        """
        every = self.trainer.val_check_interval
        if self.trainer.limit_val_batches == 0:
            return False
        scheduled = self.epoch_loop.global_step % (every if isinstance(every, int) else 1) == 0
        if self.done and not scheduled:
            whole = self.trainer._checkpoint_connector.dump_checkpoint(weights_only=False)
            self.before_the_end = copy.deepcopy({name: whole[name] for name in OF_EVENTS})
        return scheduled or self.done

    def _validate(self, module: RoundModule) -> None:
        """A validation event: its hooks, around metrics of the module's current weights."""
        trainer = self.trainer
        trainer.validating = True
        connector = trainer._logger_connector
        first_iteration, connector._first_loop_iter = connector._first_loop_iter, None
        self._validation_hook("on_validation_start")
        self._validation_hook("on_validation_epoch_start")
        self._publish(module.validation_metrics())
        self._validation_hook("on_validation_epoch_end")
        self._validation_hook("on_validation_end")
        if self.epoch_loop.val_loop._results:
            self._log(connector.update_eval_epoch_metrics())
            self.epoch_loop.val_loop._results.reset()
        connector._first_loop_iter = first_iteration
        trainer.training = True
        for interval in ("step", "epoch"):
            self.epoch_loop.update_lr_schedulers(interval, update_plateau_schedulers=True)
        self._call(self._savers, "on_validation_end")

    def _publish(self, metrics: dict[str, float]) -> None:
        """Make metrics known to callbacks that monitor them and to progress bars."""
        connector = self.trainer._logger_connector
        values = torch.tensor(list(metrics.values()), dtype=torch.float64)
        connector._callback_metrics.update(zip(metrics, values.unbind(), strict=True))
        if "val_loss" in metrics:
            connector._progress_bar_metrics["val_loss"] = metrics["val_loss"]

    def _log(self, metrics: dict[str, Any]) -> None:
        """Hand all metrics of a round to each logger in one call, without forcing it to write."""
        scalars = {name: float(value) for name, value in metrics.items()}
        self.trainer._logger_connector._logged_metrics.update(scalars)
        for logger in self.trainer.loggers:
            logger.log_metrics(scalars, step=self.epoch_loop._batches_that_stepped)

    def _hook(self, name: str, *arguments: Any) -> None:
        call._call_callback_hooks(self.trainer, name, *arguments)
        call._call_lightning_module_hook(self.trainer, name, *arguments)

    def _validation_hook(self, name: str) -> None:
        """A validation hook for everyone but progress bars, which show rounds and would draw a bar for each event."""
        self._call([one for one in self._others if not isinstance(one, ProgressBar)], name)
        call._call_lightning_module_hook(self.trainer, name)

    def _call(self, callbacks: list[Callback], name: str, *arguments: Any) -> None:
        """A hook for some of the callbacks."""
        module = self.trainer.lightning_module
        outer, module._current_fx_name = module._current_fx_name, name
        for callback in callbacks:
            with self.trainer.profiler.profile(f"[Callback]{callback.state_key}.{name}"):
                getattr(callback, name)(self.trainer, module, *arguments)
        module._current_fx_name = outer

    def _continue_after_restart(self) -> None:
        """Set all counters of rounds to the one that a checkpoint vouches for."""
        rounds = self.epoch_loop.global_step
        progress = self.epoch_loop.batch_progress
        for count in (progress.current, progress.total):
            vars(count).update(ready=rounds, started=rounds, processed=rounds, completed=rounds)
        self.epoch_loop._batches_that_stepped = rounds
