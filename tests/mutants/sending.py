"""Faults in what sends, records and tells: creates, batches, journals and durable jobs."""

from typing import Final

from tests.mutants.mutant import Mutant

SENDING: Final = (
    # Creates over HTTP.
    Mutant(
        "a-create-repeated-after-a-5xx",
        "_http/responses.py",
        "unknown = status in _UNKNOWN_CREATES or status >= 500",
        "unknown = status in _UNKNOWN_CREATES",
        "A gateway answers 502 although the service has started the agent: the create is repeated, and doubled.",
    ),
    Mutant(
        "a-408-told-as-a-refusal",
        "_http/responses.py",
        "_UNKNOWN_CREATES: Final = frozenset({303, 408})",
        "_UNKNOWN_CREATES: Final = frozenset({303})",
        "A create that may have started an agent is told as rejected: the user sends it again.",
    ),
    Mutant(
        "creates-on-kept-connections",
        "_http/transport.py",
        "self._fresh = self._client(Pool(names, force_close=True))",
        "self._fresh = self._client(Pool(names))",
        "A create goes out on a connection that the server is closing: harmless ones end as unknown.",
    ),
    Mutant(
        "creates-follow-redirects",
        "_http/transport.py",
        '"allow_redirects": False',
        '"allow_redirects": True',
        "A redirect leads the prompt to a foreign origin, and may start a second agent.",
        ("tests/contract/test_creates.py",),
    ),
    Mutant(
        "an-answer-lost-with-its-cancellation",
        "_http/progress.py",
        "return self._step is _Step.SENT",
        "return False",
        "A create that is cancelled as its answer comes ends as unknown, and the id is lost.",
    ),
    Mutant(
        "a-late-id-not-logged",
        "_http/create.py",
        """\
                report_left(left, error)
                self._hooks.left(left, error)
""",
        "",
        "An agent works, and nothing names its job to anybody: no log, no note, no event.",
    ),
    Mutant(
        "a-deadline-from-the-end-of-the-create",
        "session.py",
        "left = None if seconds is None else max(seconds - (clock() - began), 0.001)",
        "left = seconds",
        "A `run_job` takes up to twice as long as its timeout.",
    ),
    # The way of an item.
    Mutant(
        "sending-goes-to-planned-on-resume",
        "batch/_store/owning.py",
        "store.move_all(DOUBT, _ROW.number.in_(numbers), is_dead, mover=mover, error=_OWNER_GONE)",
        "store.move_all(RELEASE, _ROW.number.in_(numbers), is_dead, mover=mover, error=_OWNER_GONE)",
        "After a crash, a create that had left is sent again: two agents for one item.",
    ),
    Mutant(
        "an-abandoned-row-is-sent",
        "batch/_database/sqlite.py",
        "or_(_ROW.state == State.PLANNED, repeated)",
        "or_(_ROW.state.in_([State.PLANNED, State.ABANDONED]), repeated)",
        "An item that its user has withdrawn is sent all the same.",
    ),
    Mutant(
        "an-item-begun-while-closing",
        "batch/_run/tasks.py",
        "        running.phase = self.phase\n",
        "",
        "A batch or worker that is ending sends creates that nobody waits for.",
    ),
    Mutant(
        "a-claim-sent-though-held-back-meanwhile",
        "batch/_run/item_create.py",
        """\
        self.item.send_under(claimed, terms.key_of(claimed))
        if not self._may_go(permit):
            await self._plan_again(claimed, None)
            return None
""",
        "        self.item.send_under(claimed, terms.key_of(claimed))\n",
        "Creates go out after the server's 429, or after the run has begun to end.",
    ),
    Mutant(
        "the-permit-of-all-before-the-slot",
        "batch/_run/item_create.py",
        """\
            await self.item.context.slots.take(self.item.slot)
            await permit.pass_next()
""",
        """\
            await permit.pass_next()
            await self.item.context.slots.take(self.item.slot)
""",
        "Items that wait for a slot hold parts of the rate of all projects: others stand still.",
    ),
    Mutant(
        "active-before-the-id-is-recorded",
        "batch/_run/item_create.py",
        """\
        await asyncio.shield(self._start_recording(claim, job.ref))
        if self.item.row.job_id != job.id:
""",
        """\
        self.item.set_state(State.ACTIVE)
        await asyncio.shield(self._start_recording(claim, job.ref))
        if self.item.row.job_id != job.id:
""",
        "A run that ends while an id is being recorded leaves before the id is durable.",
    ),
    Mutant(
        "the-recording-of-an-id-not-shielded",
        "batch/_run/item_create.py",
        "await asyncio.shield(self._start_recording(claim, job.ref))",
        "await self._start_recording(claim, job.ref)",
        "A cancellation at the wrong moment leaves a job that no journal knows.",
    ),
    Mutant(
        "an-item-sent-to-the-default-project",
        "batch/_run/item_create.py",
        "project_id=self.item.row.project_id,",
        "project_id=None,",
        "Resumed by a session of another project, a batch creates its jobs there.",
    ),
    Mutant(
        "an-extra-not-sent",
        "batch/_run/item_create.py",
        "if self.item.row.extra is not None:",
        "if self.item is None:",
        "The agent of an item works on the default branch instead of the one that its user named.",
        ("tests/batch/test_extra.py",),
    ),
    Mutant(
        "an-extra-lost-by-planning",
        "batch/_store/store.py",
        "if any(item.extra for item in items):",
        "if all(item.extra for item in items):",
        "Items that are planned beside one without an extra are sent without theirs.",
        ("tests/batch/test_extra.py",),
    ),
    Mutant(
        "a-key-that-changes-its-extra",
        "batch/_store/statements.py",
        "_ROW.extra.is_not_distinct_from(given.extra),",
        "",
        "An item is taken for done although the agent of its key was told something else.",
        ("tests/batch/test_extra.py",),
    ),
    Mutant(
        "equal-extras-told-apart-by-their-order",
        "_extra.py",
        ", sort_keys=True)",
        ")",
        "The same input in another order is refused as that of other items.",
        ("tests/test_extra.py", "tests/batch/test_extra.py"),
    ),
    Mutant(
        "an-empty-cell-as-an-extra",
        "cli/_input/templates.py",
        "if not all(field_text(fields, name).strip() for name in self.names):",
        "if not all(name in fields for name in self.names):",
        "An empty cell is sent as an empty branch, which the service refuses or, worse, takes.",
        ("tests/cli/input/test_extras.py",),
    ),
    Mutant(
        "an-extra-in-the-column-of-a-context",
        "report/items.py",
        "while column in COLUMNS or column in context or column in extra:",
        "while column in COLUMNS or column in extra:",
        "A table shows what was sent where the user's own field belongs, which is lost.",
        ("tests/report/test_items.py",),
    ),
    # Limits of creates.
    Mutant(
        "a-rate-counted-from-the-start",
        "batch/_run/create_gate.py",
        '''\
            self._under_way += 1
            return self.recalls

    def spend(self) -> None:
        """Count a create that the server answered, or may have answered."""
        self._under_way -= 1
        self._window.add(self._clock())
''',
        '''\
            self._under_way += 1
            self._began = self._clock()
            return self.recalls

    def spend(self) -> None:
        """Count a create that the server answered, or may have answered."""
        self._under_way -= 1
        self._window.add(self._began)
''',
        "Where creates are slow to arrive, the server counts more of them in a span than its quota allows.",
    ),
    Mutant(
        "a-rate-forgets-refused-creates",
        "batch/_run/create_gates.py",
        """\
        permit.spend()
        own = self.of(permit.project)
        is_news = own.limit(began, """,
        """\
        permit.refund()
        own = self.of(permit.project)
        is_news = own.limit(began, """,
        "After a 429, more creates are sent than the server's quota has room for, and it refuses them, too.",
    ),
    Mutant(
        "a-lost-wake-up-of-creates",
        "batch/_run/create_gate.py",
        '''\
        """Discard a create that never reached the server."""
        self._under_way -= 1
        self._changed.set()
''',
        '''\
        """Discard a create that never reached the server."""
        self._under_way -= 1
''',
        "A create that waits for a place of the rate is never sent once another one gave it back.",
    ),
    Mutant(
        "a-permit-not-given-back",
        "batch/_run/item_create.py",
        """\
        finally:
            permit.refund()
            if self.item.state is State.PLANNED:
""",
        """\
        finally:
            if self.item.state is State.PLANNED:
""",
        "Each item that is stopped before its create takes a place of the rate for good.",
    ),
    Mutant(
        "an-unknown-item-keeps-no-slot",
        "batch/_run/context.py",
        "self.context.limits.unknown_for if self.state is State.UNKNOWN else 0.0",
        "0.0",
        "More agents are at work than `max_active` allows, since those of unknown creates are not counted.",
    ),
    # What a journal keeps.
    Mutant(
        "the-key-in-the-journal",
        "batch/_run/records.py",
        "return one_line(self._mask(_whole_text(error)), LONGEST_ERROR_BYTES)",
        "return one_line(_whole_text(error), LONGEST_ERROR_BYTES)",
        "A server that echoes the key brings it into the journal, and from there into reports.",
    ),
    Mutant(
        "a-journal-of-any-service",
        "batch/_service.py",
        "    if known == service:\n        return None\n",
        "    if known is not None:\n        return None\n",
        "A run with the wrong address looks for the jobs of another service, and records that they are gone.",
    ),
    # Durable jobs.
    Mutant(
        "told-before-on-end-was-called",
        "durable/_following.py",
        """\
        called = await on_end(evolve(entry, context=row.context or {}), ended)
        if called.is_done:
            await _retried(partial(self._record_told, followed, entry))
        return called
""",
        """\
        await _retried(partial(self._record_told, followed, entry))
        return await on_end(evolve(entry, context=row.context or {}), ended)
""",
        "A process that is killed as a job ends never tells of the end: a chat waits for ever.",
    ),
    Mutant(
        "on-end-before-the-end-is-recorded",
        "durable/_following.py",
        "                recorded, outcome = await _retried(record)\n",
        """\
                if self.on_end is not None and isinstance(ended, AgentJob):
                    await self.on_end(DurableEntry(followed.key, State(ended.status)), ended)
                recorded, outcome = await _retried(record)
""",
        "Who is told of an end finds the job active in the journal, and is told once more.",
    ),
    Mutant(
        "planned-again-and-not-followed",
        "batch/_store/statements.py",
        "followed), else_=_ROW.follow)",
        "_ROW.follow), else_=_ROW.follow)",
        "A durable job that was unfollowed and is planned again is sent by nobody.",
        ("tests/batch", "tests/durable"),
    ),
)
