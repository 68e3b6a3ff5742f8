"""Blobs as tasks of an NVFlare controller: one task for each site, answers as they come."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from typing import Any

from nvflare.apis.controller_spec import ClientTask, Task
from nvflare.apis.fl_constant import ReturnCode
from nvflare.apis.fl_context import FLContext
from nvflare.apis.impl.controller import Controller
from nvflare.apis.shareable import Shareable
from nvflare.apis.signal import Signal

from gfl_lightning.deploy.nvflare.executor import BLOB
from gfl_lightning.deploy.transport import Transport

LOOK_AGAIN = 0.2


class AbortedError(RuntimeError):
    """NVFlare has ended the job; what was reached is on disk."""


class NVFlareTransport(Transport):
    """Sends tasks to clients of a job and waits for their results.

    Args:
        controller: of the job.
        fl_ctx: its context.
        abort_signal: tells that the job is being ended.
    """

    def __init__(self, controller: Controller, fl_ctx: FLContext, abort_signal: Signal) -> None:
        self._controller, self._fl_ctx, self._abort = controller, fl_ctx, abort_signal

    def exchange(
        self, phase: str, blobs: Mapping[str, bytes], timeout: float
    ) -> tuple[dict[str, bytes], dict[str, str]]:
        """One task for each site; a site that NVFlare takes for dead is not waited for."""
        replies: dict[str, bytes] = {}
        missing: dict[str, str] = {}
        news = threading.Condition()

        def received(client_task: ClientTask, fl_ctx: FLContext) -> None:
            site, result = client_task.client.name, client_task.result
            with news:
                blob = result.get(BLOB) if isinstance(result, Shareable) else None
                if isinstance(blob, bytes) and result.get_return_code(ReturnCode.OK) == ReturnCode.OK:
                    replies[site] = blob
                else:
                    missing[site] = "the site's process could not answer"
                news.notify()
            client_task.result = None

        tasks, here = {}, {client.name for client in self._fl_ctx.get_engine().get_clients()}
        for site, blob in blobs.items():
            if site not in here:
                missing[site] = "it is not connected"
                continue
            data = Shareable()
            data[BLOB] = blob
            tasks[site] = Task(phase, data, timeout=int(timeout) + 1, result_received_cb=received)
            self._controller.send(tasks[site], self._fl_ctx, targets=[site])
        ends = time.monotonic() + timeout
        with news:
            while len(replies) + len(missing) < len(blobs):
                self._look(tasks, replies, missing, ends, timeout)
                if len(replies) + len(missing) < len(blobs):
                    news.wait(LOOK_AGAIN)
        for site in set(tasks) & set(missing):
            self._controller.cancel_task(tasks[site])
        return replies, missing

    def _look(
        self, tasks: Mapping[str, Any], replies: Mapping[str, bytes], missing: dict[str, str], ends: float, limit: float
    ) -> None:
        """Give up sites that are dead or late; give up everything if the job is being ended."""
        if self._abort.triggered:
            raise AbortedError("the job was ended")
        late = time.monotonic() > ends
        for site in tasks:
            if site in replies or site in missing:
                continue
            if late:
                missing[site] = f"it did not answer within {limit:g} s"
            elif self._controller.get_client_disconnect_time(site):
                missing[site] = "it is disconnected"
