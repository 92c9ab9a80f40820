"""The functions that Campanile calls: the exports of the world in wit/."""

import json

from componentize_py_types import Err
from wit_world import exports
from wit_world.imports import run_info
from wit_world.imports.campanile_task_types import Completion, Failure
from wit_world.imports.logging import Level, log

import webhook
from primes import BadContext, Params, count_primes, report_file


class Describe(exports.Describe):
    def describe(self) -> str:
        """The host calls this when it loads the file, without any capability. The manifest grants nothing."""
        return json.dumps(
            {
                "name": "python-task",
                "version": "0.1.0",
                "summary": "Counts primes with a sieve",
                "schedules": [{"cron": "0 2 * * *"}],
            }
        )


class Task(exports.Task):
    def run(self, task: str, context: str) -> Completion:
        try:
            return Completion(output=json.dumps(work(json.loads(context))), context=None)
        except BadContext as error:
            raise failure(str(error), retryable=False)
        except (PermissionError, FileNotFoundError) as error:
            # In the sandbox, a missing grant appears as one of these errors.
            message = f'the report cannot be written: {error}; grant its directory with access = "write"'
            raise failure(message, retryable=False, kind="denied")
        except webhook.Denied as error:
            raise failure(str(error), retryable=False, kind="denied")
        except (OSError, webhook.Failed) as error:
            raise failure(str(error), retryable=True)
        # Any other exception is a bug: it ends the call, and the traceback is recorded.


def work(context: dict) -> dict:
    params = Params.of(context)
    # The slot is the same for every run of this launch, however late the run is.
    slot = context["original_scheduled_time"]
    if run_info.is_recovery():
        log(Level.WARN, "", f"an earlier run for {slot} was lost; this run repeats its work")
    reported = 0
    for round in range(1, params.rounds + 1):
        primes = count_primes(params.below)
        if (percent := round * 100 // params.rounds) > reported:
            run_info.report_progress(percent, f"{round} of {params.rounds} rounds")
            reported = percent
    log(Level.INFO, "", f"{primes} primes below {params.below}")
    # The result does not depend on the run, so a repeated run leaves the same result.
    result = {"below": params.below, "primes": primes, "slot": slot}
    if params.report:
        with open(report_file(params.report, slot), "w") as file:
            json.dump(result, file)
    if params.notify:
        # The id is the same for every run of this launch: the receiver can detect a repetition.
        webhook.post(params.notify, result, idempotency_key=run_info.execution_id())
    return result | {"is_recovery": run_info.is_recovery(), "attempt": run_info.attempt()}


def failure(message: str, retryable: bool, kind: str | None = None) -> Err[Failure]:
    details = json.dumps({"kind": kind}) if kind else None
    return Err(Failure(message=message, retryable=retryable, retry_after_ms=None, details=details))
