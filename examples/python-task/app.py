"""The package: its task, and the schedule that it proposes. The manifest grants nothing."""

import json

import campanile

from primes import Params, count_primes, report_file

package = campanile.Package(
    "python-task",
    "0.1.0",
    summary="Counts primes with a sieve",
    schedules=[{"cron": "0 2 * * *"}],
)


@package.task
def count(run: campanile.Run, params: Params) -> dict:
    # The slot is the same for every run of this launch, however late the run is.
    if run.is_recovery:
        run.warn(f"an earlier run for {run.slot} was lost; this run repeats its work")
    reported = 0
    for round in range(1, params.rounds + 1):
        primes = count_primes(params.below)
        if (percent := round * 100 // params.rounds) > reported:
            run.progress(percent, f"{round} of {params.rounds} rounds")
            reported = percent
    run.info(f"{primes} primes below {params.below}")
    # The result does not depend on the run, so a repeated run leaves the same result.
    result = {"below": params.below, "primes": primes, "slot": run.slot}
    if params.report:
        write(report_file(params.report, run.slot), json.dumps(result))
    if params.notify:
        # The id is the same for every run of this launch: the receiver can detect a repetition.
        campanile.http.post(params.notify, json=result, idempotency_key=run.execution_id)
    # An unexpected exception is a bug: it ends the call, and its traceback is recorded.
    return result | {"is_recovery": run.is_recovery, "attempt": run.attempt}


def write(path: str, text: str) -> None:
    try:
        with open(path, "w") as file:
            file.write(text)
    except (PermissionError, FileNotFoundError) as error:
        # In the sandbox, a missing grant appears as one of these errors.
        raise campanile.Denied(
            f'the report cannot be written: {error}; grant its directory with access = "write"'
        ) from error
    except OSError as error:
        raise campanile.Retryable(f"the report cannot be written: {error}") from error


# The classes that componentize-py looks for: what the world in wit/ exports.
Describe, Task = package.exports()
