"""Faults in what waits, polls, closes, learns and shows."""

from typing import Final

from tests.mutants.mutant import Mutant

WATCHING: Final = (
    # One read.
    Mutant(
        "a-date-measured-by-the-own-clock",
        "_http/headers.py",
        "return max(target - (now if origin is None else origin), 0.0)",
        "return max(target - now, 0.0)",
        "Where the clocks differ, the client comes back before the server has asked for it, or hours later.",
    ),
    Mutant(
        "the-job-of-another-id",
        "_http/responses.py",
        "        if job.id != ref.job_id:\n            other =",
        "        if not job.id:\n            other =",
        "A proxy's mixed-up answer ends the wait for a job with the result of another one.",
    ),
    Mutant(
        "a-body-without-a-bound",
        "_http/transport.py",
        "while size <= limit and not content.at_eof():",
        "while not content.at_eof():",
        "A body without end fills the memory.",
        ("tests/contract/test_memory.py",),
    ),
    # When to ask.
    Mutant(
        "the-newest-label-on-a-shared-poll",
        "_polling/tracked.py",
        "if self.label is None and label is not None:",
        "if label is not None:",
        "The events of a job change their label when another caller waits for it: a dashboard loses its series.",
    ),
    Mutant(
        "a-read-that-waits-outside-its-scope",
        "_polling/waits.py",
        """\
        with CancelScope(None, self._shutdown.waits) as scope:
            async with self._slots:
""",
        """\
        async with self._slots:
            with CancelScope(None, self._shutdown.waits) as scope:
""",
        "A read that waits for its turn goes on after the session was closed, and sends a request then.",
    ),
    Mutant(
        "a-block-begun-too-late-to-be-interrupted",
        "_loop/cancel_scope.py",
        """\
        super().add(scope)
        if self._reason is not None:
            scope.interrupt(copy(self._reason))
""",
        "        super().add(scope)\n",
        "What begins to wait in the moment of the closing waits on, and the program does not end.",
    ),
    Mutant(
        "a-drain-that-forgets-blocks-under-way",
        "_loop/shutdown.py",
        "return tuple(self._lost) + tuple(job for recording in self._recordings for job in recording)",
        "return tuple(self._lost)",
        "A program ends with exit code 0 although jobs that were created are in no database.",
    ),
    Mutant(
        "a-pause-that-forgets-its-project",
        "_polling/queue.py",
        "            self._pause(job.ref.project_id, held_until)\n",
        "            pass\n",
        "After a 429 without a Retry-After, all other jobs of the project are polled on at full speed.",
    ),
    Mutant(
        "a-pause-released-at-the-pace-of-one-job",
        "_polling/queue.py",
        "self._gate.release_interval(jobs, now - hold.released_at)",
        "self._gate.release_interval(1, now - hold.released_at)",
        "After a 429 the jobs of a large project are polled one by one, each after the usual delay of one job.",
    ),
    Mutant(
        "a-release-slowed-by-what-has-ended",
        "_polling/gate.py",
        "max(self._piled_up_jobs, len(self._jobs))",
        "len(self._jobs)",
        "After an outage in which most jobs have ended, each poll that finds this out delays all others.",
    ),
    Mutant(
        "a-poll-that-has-not-left-in-a-slow-slot",
        "_polling/workers.py",
        "                self._queue.block(job)\n",
        "",
        "A callable that swallows its cancellation stops the polls of every other job that has hung once.",
    ),
    Mutant(
        "deadlines-that-stop-all-others",
        "_polling/lane.py",
        "self._urgent_popped >= _URGENT_IN_A_ROW and self.ready > self._urgent.ready",
        "False",
        "Under a limit, waits with short timeouts, one after the other, keep every long wait from being polled.",
    ),
    Mutant(
        "a-refused-project-that-slows-all",
        "_polling/gate.py",
        "if self._answered_at <= self._limited.pop(project_id, inf):",
        "if self._limited.pop(project_id, inf):",
        "One suspended project lowers the limit of `auto` until no job of any other is polled in time.",
    ),
    Mutant(
        "a-pause-of-one-project-for-all",
        "_polling/gate.py",
        "return len(askers) == _ALL_POLLS",
        "return bool(askers)",
        "A 429 to one project stops the polls of every other one.",
    ),
    Mutant(
        "a-wish-that-shortens-the-delay",
        "_polling/wait_state.py",
        "self.due = max(now + delay_of(policy, self, outcome, now), self.not_before)",
        "self.due = self.not_before if retry_after else now + delay_of(policy, self, outcome, now)",
        "A server that answers errors with a Retry-After of 1 s is polled ten times as often as a healthy one.",
    ),
    Mutant(
        "a-grace-for-each-waiter",
        "_polling/tracked.py",
        "        waiter.begin(self, ",
        "        self.seen = waiter.started\n        waiter.begin(self, ",
        "A job that does not exist is polled for as long as new callers come to wait for it.",
    ),
    Mutant(
        "an-answer-in-hand-dropped-at-the-deadline",
        "_polling/deadlines.py",
        "_GRACE_ITERATIONS: Final = 6",
        "_GRACE_ITERATIONS: Final = 0",
        "After the loop stood still, waits time out although the end of their job has been received.",
    ),
    Mutant(
        "polls-in-the-context-of-their-caller",
        "_polling/workers.py",
        "self._loop.call_soon(self._fill, context=Context())",
        "self._loop.call_soon(self._fill)",
        "The variables of one request, its user say, reach the polls and events of another one.",
        ("tests/contract/test_contexts.py",),
    ),
    # What is learned and told.
    Mutant(
        "a-cancellation-that-names-no-job",
        "telemetry/left_jobs.py",
        "        cut.add_note(words)\n",
        "        pass\n",
        "Who catches the cancellation of a create that was answered cannot find its job again.",
        ("tests/http/test_create.py", "tests/test_session.py"),
    ),
    Mutant(
        "a-duration-from-the-start-of-the-wait",
        "_polling/wait_state.py",
        "self._learn(job, wait.seen - wait.created, now - wait.created)",
        "self._learn(job, wait.seen - wait.started, now - wait.started)",
        "Jobs that are waited for late count as short: estimates are too early, and polls too frequent.",
        ("tests/polling/test_wait_state.py", "tests/learning/test_strategy.py"),
    ),
    Mutant(
        "a-fault-polled-at-the-learned-pace",
        "learning/strategy.py",
        "return delay if isinstance(state.value, AgentJob) else max(delay, DEFAULT_WAIT(state))",
        "return delay",
        "A server in trouble is polled up to twice as often as a healthy one.",
    ),
    Mutant(
        "no-wait-ended-for-a-job-left-behind",
        "_http/create.py",
        "                self._hooks.left(left, error)\n",
        "",
        "A metric or span shows nothing of an agent that works for a caller that was cut off.",
        ("tests/http/test_create.py",),
    ),
    # What end users see.
    Mutant(
        "an-unknown-create-to-be-retried",
        "web/answers.py",
        'CreateOutcomeUnknownError: _Meaning(502, "unknown")',
        'CreateOutcomeUnknownError: _Meaning(502, "unknown", retry=True)',
        "A browser's client is asked to repeat a create that may have started an agent.",
    ),
    Mutant(
        "an-end-not-sent-again",
        "web/events.py",
        'if event is None or event["event"] == "job_end" or event["id"] != last_event_id:',
        'if event is None or event["id"] != last_event_id:',
        "A browser that reconnects after the end waits for an event that never comes, and connects for ever.",
    ),
    Mutant(
        "one-session-drained-of-several",
        "web/shutdown.py",
        "for draining in _drainings_at(number):",
        "for draining in _drainings_at(number)[:1]:",
        "A server with two sessions loses the jobs of one of them at each deployment.",
    ),
    Mutant(
        "the-exit-code-of-a-signal-before-lost-ids",
        "cli/process.py",
        "            if names_unrecorded(error):\n                return code\n",
        "",
        "A script that is stopped does not learn that jobs are in no journal.",
        ("tests/cli/test_process.py",),
    ),
)
