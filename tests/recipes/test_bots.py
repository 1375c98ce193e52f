"""What users and operators of each bot see: the bots as processes, against chat servers on loopback."""

import re
import signal
from collections.abc import AsyncIterator
from io import BytesIO
from pathlib import Path

import pytest
from aiohttp import ClientSession

from agentjobs_async import AgentJobsSession
from agentjobs_async.batch import Journal
from agentjobs_async.chat import ChatJobs, Place, Texts
from agentjobs_async.testing import Emulator, JobScript
from tests.recipes.chat import Chat, serve
from tests.recipes.discord_api import DiscordApi
from tests.recipes.processes import Program, complete, half_a_body, program
from tests.recipes.slack_api import SlackApi
from tests.recipes.telegram_api import TelegramApi
from tests.until import until

pytestmark = pytest.mark.slow

BOTS: dict[str, type[Chat]] = {
    "aiogram_bot": TelegramApi,
    "python_telegram_bot": TelegramApi,
    "slack_bot": SlackApi,
    "discord_bot": DiscordApi,
}
DISCORD_ON_LOOPBACK = """
import sys, runpy, discord, yarl
_, address, recipe = sys.argv
discord.http.Route.BASE = address
discord.gateway.DiscordWebSocket.DEFAULT_GATEWAY = yarl.URL(address)
sys.path.insert(0, recipe.rpartition("/")[0])
runpy.run_path(recipe, run_name="__main__")
"""
ANNA, BEN, OPERATOR = 7, 17, 9
LINES = [f"{n}. <b> & &amp; &lt; {{0}} @everyone <!here> https://code.example/?a=1&b={n} äöü 🎉  " for n in range(50)]
LONG = "\n".join(LINES) + "end"
UNKNOWN = "I can't tell whether this was started; please look before you ask again."


@pytest.fixture(params=list(BOTS))
def recipe(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


@pytest.fixture
async def chat(recipe: str) -> AsyncIterator[Chat]:
    async with serve(BOTS[recipe]()) as chat:
        yield chat


@pytest.fixture
async def bot(recipe: str, chat: Chat, service: Emulator, tmp_path: Path) -> AsyncIterator[Program]:
    before = ("-c", DISCORD_ON_LOOPBACK, chat.address) if recipe == "discord_bot" else ()
    operators = f"1 {OPERATOR} U{OPERATOR}"
    settings = {**chat.settings(), "JOURNAL": str(tmp_path / "bot.db"), "OPERATORS": operators}
    async with program(recipe, {**service.environment(), **settings}, before=before) as bot:
        yield bot


async def test_ends(bot: Program, chat: Chat, service: Emulator) -> None:
    """A prompt arrives as it was written; each end is told as what it is; users see their own jobs."""
    scripts = {LONG: JobScript(duration=0), "Fail": JobScript(duration=0, outcome="failed")}
    scripts["Archive"] = JobScript(duration=0, outcome="archived")
    for prompt, script in scripts.items():
        service.script(script, prompt=prompt)
    await service.inject("422 on=create", prompt="Refuse")
    await service.inject("410 forever on=get", prompt="Vanish")
    async with bot.running() as process:
        await chat.connect(process)
        keys = [await chat.say(ANNA, "job", prompt) for prompt in (LONG, "Fail", "Archive", "Refuse", "Vanish")]
        done, failed, archived, refused, gone = keys
        ends = [f"{done} completed: https://", f"{failed} failed: no change", f"{archived} archived: "]
        ends += [f"{refused} the service refused this; nothing was started", f"{gone} the job is gone"]
        await process.watch(chat.until(*(f"{key} is noted" for key in keys), *ends))
        assert [sum(end in text for text in chat.texts) for end in ends] == [1] * len(ends), chat.texts
        await chat.deliver_again()  # of a job that has ended: its answer is the end
        other = await chat.say(BEN, "job", of_ben := f"Not {done}")
        await process.watch(until(lambda: service.agents_started[of_ben]))
        await chat.say(ANNA, "job", " \n")
        await process.watch(chat.until(f"{other} is noted", "What is to be done?"))
        await chat.say(ANNA, "jobs")
        await process.watch(chat.until(f"{done} completed https://"))
        await chat.say(OPERATOR, "jobs")
        await process.watch(chat.until(Texts().none_listed()))
        (listed,) = [text for text in chat.texts if f"{done} completed https://" in text]
        await process.stop()
    assert service.agents_started == {LONG: 1, "Fail": 1, "Archive": 1, "Vanish": 1, of_ben: 1}
    lines = listed.splitlines()
    assert [line.split()[:2] for line in lines] == [
        [done, "completed"],
        [failed, "failed"],
        [archived, "archived"],
        [refused, "rejected"],
        [gone, "failed"],
    ]
    assert all(len(line) <= 200 for line in lines)
    assert [sum(end in text for text in chat.texts) for end in ends[:-1]] == [1] * 4, chat.texts


async def test_unknown(bot: Program, chat: Chat, service: Emulator) -> None:
    """An unknown create is told as that, and settled in the running bot, by operators only."""
    for prompt in ("Found", "Again", "Abandon"):
        await service.inject("500 on=create", prompt=prompt)
    async with bot.running() as process:
        await chat.connect(process)
        found, again, abandoned = keys = [await chat.say(ANNA, "job", text) for text in ("Found", "Again", "Abandon")]
        await process.watch(chat.until(*(f"{key} {UNKNOWN}" for key in keys)))
        active = await chat.say(ANNA, "job", "At work")
        await process.watch(until(lambda: service.agents_started["At work"]))
        agents = dict(service.agents_started)
        await chat.say(ANNA, "settle", f"{chat.key(ANNA, found)} again")
        await process.watch(chat.until("Only operators may do this."))
        by_hand, doubled, given_up = [chat.key(ANNA, key) for key in keys]
        listed = f"/settle KEY abandon. Unknown: {by_hand}, {doubled}, {given_up}"
        at_work = chat.key(ANNA, active)
        for text in ("x", f"{by_hand} agian", f"{by_hand} job a b", "no_such again", f"{at_work} abandon"):
            chat.texts.clear()
            await chat.say(OPERATOR, "settle", text)
            await process.watch(chat.until(listed))
        for text in (f"{by_hand} job no_such", f"{by_hand} job docs:x"):
            chat.texts.clear()
            await chat.say(OPERATOR, "settle", text)
            await process.watch(chat.until("HTTP 404"))
        assert service.agents_started == agents
        async with service.session() as session:
            job = await session.create_job("By hand", project_id=service.environment()["AGENTJOBS_PROJECT_ID"])
        for text in (f"{by_hand} job {job.id}", f"{doubled} again", f"{given_up} abandon"):
            await chat.say(OPERATOR, "settle", text)
        settled = [f"{key} is settled" for key in (by_hand, doubled, given_up)]
        await process.watch(chat.until(f"{abandoned} an operator gave this up", *settled))
        await complete(service)
        await process.watch(chat.until(*(f"{key} completed: https://" for key in (found, again, active))))
        await process.stop()
    assert service.agents_started["Again"] == agents.get("Again", 0) + 1
    assert service.agents_started["Found"] == agents.get("Found", 0)


async def test_cancel(bot: Program, chat: Chat, service: Emulator) -> None:
    """A planned job is taken back, the end of an active one is told no more, and each user has the own ones only."""
    service.script(JobScript(duration=1e6), prompt="At work")
    await service.inject("429 retry-after=900 on=create", prompt="Wait")
    async with bot.running() as process:
        await chat.connect(process)
        active = await chat.say(ANNA, "job", "At work")
        await process.watch(until(lambda: service.agents_started["At work"]))
        planned = await chat.say(ANNA, "job", "Wait")
        await process.watch(chat.until(f"{planned} waits to be sent: "))
        later = await chat.say(ANNA, "job", "Later")
        await process.watch(chat.until(f"{later} is noted, and waits."))
        await chat.say(BEN, "cancel", planned)
        await process.watch(chat.until("Which? Look at /jobs."))
        await chat.say(ANNA, "cancel", planned)
        await process.watch(chat.until(f"{planned} is taken back.", f"{planned} was taken back; nothing was started"))
        await chat.say(ANNA, "cancel", active)
        await process.watch(chat.until(f"{active} is at work: its agent goes on, but its end will not be told."))
        await chat.say(ANNA, "cancel", planned)
        await process.watch(chat.until(f"{planned} is not under way."))
        await process.stop()
    assert service.agents_started == {"At work": 1}


async def test_order(bot: Program, chat: Chat, tmp_path: Path) -> None:
    """A command is confirmed once its job is in the journal, so that a kill in between loses nothing."""
    confirmed: dict[str, bool] = {}

    async def look_up(message: str) -> None:
        async with Journal.open(tmp_path / "bot.db", read_only=True) as journal:
            confirmed[message] = chat.key(ANNA, message) in {row.key for row in await journal.rows()}

    chat.on_confirm = look_up
    async with bot.running() as process:
        await chat.connect(process)
        keys = [await chat.say(ANNA, "job", f"Fix page {number}") for number in range(20)]
        await process.watch(until(lambda: len(confirmed) == len(keys)))
        await process.stop()
    assert confirmed == dict.fromkeys(keys, True)


async def test_kills(recipe: str, bot: Program, chat: Chat, service: Emulator) -> None:
    """A bot that is killed at any step starts each command's agent once, and tells each end."""
    await service.inject("hang on=create", prompt="Killed amid its create")
    async with bot.running() as process:
        await chat.connect(process)
        first = await chat.say(ANNA, "job", "Killed amid its create")
        await process.watch(until(lambda: service.agents_started["Killed amid its create"]))
        process.interrupt(signal.SIGKILL)
        await process.end()
    async with bot.running() as process:
        await chat.connect(process)
        second = await chat.say(ANNA, "job", "Killed while it is at work")
        await process.watch(chat.until(f"{first} {UNKNOWN}", f"{second} is noted"))
        await process.watch(until(lambda: any(request.method == "GET" for request in service.requests)))
        process.interrupt(signal.SIGKILL)
        await process.end()
    async with bot.running() as process:
        await chat.connect(process)
        await chat.deliver_again()
        third = await chat.say(ANNA, "job", "Killed at once")
        process.interrupt(signal.SIGKILL)
        await process.end()
    is_lost = "discord" in recipe  # its user sees that the command was not answered
    fourth = "" if is_lost else await chat.say(ANNA, "job", "Asked while there is no bot")
    async with bot.running() as process:
        await chat.connect(process)
        await complete(service)
        await process.watch(chat.until(f"{second} completed: https://"))
        if not is_lost:
            ends = re.compile(rf"{third} (completed|I can't tell)")
            await process.watch(chat.wait_for(lambda: any(map(ends.match, chat.texts))))
            await process.watch(chat.until(f"{fourth} completed: https://"))
        await process.stop()
    assert max(service.agents_started.values()) == 1


async def test_signals(bot: Program, chat: Chat, service: Emulator) -> None:
    """Two SIGTERMs end a bot, but no create under way, whose job is followed by the next one."""
    await service.inject("hang for=0.5 agent=yes on=create")
    async with bot.running() as process:
        await chat.connect(process)
        key = await chat.say(ANNA, "job", "Go on")
        await process.watch(until(lambda: service.agents_started["Go on"]))
        await process.stop()
    await complete(service)
    async with bot.running() as process:
        await chat.connect(process)
        await process.watch(chat.until(f"{key} completed: https://"))
        await chat.say(ANNA, "jobs")  # a bot that answers has begun, and ends by itself at a signal
        await process.watch(chat.until(f"{key} completed https://"))
        await process.stop()
    assert service.agents_started == {"Go on": 1}


async def test_signals_at_the_start(recipe: str, bot: Program, chat: Chat, service: Emulator, tmp_path: Path) -> None:
    """SIGTERMs that come as a bot starts cut no create that its start has sent: the next one follows its job."""
    place = Place(int(chat.name), ANNA, 1) if chat.name.isdigit() else Place(chat.name, chat.user(ANNA), "1.1")

    async def nobody(_place: Place, _text: str) -> None:
        """Say nothing."""

    url, key, project = (service.environment()[f"AGENTJOBS_{name}"] for name in ("BASE_URL", "API_KEY", "PROJECT_ID"))
    async with AgentJobsSession(url, key, project_id=project) as session:
        await session.drain()
        async with ChatJobs(nobody, journal=tmp_path / "bot.db", session=session) as jobs:
            await jobs.answer(place, "job", "Planned before")  # it is sent at the start of the bot
    # Before its polling begins, aiogram leaves a signal to what was there before, once all is recorded.
    codes = {0, -signal.SIGTERM} if recipe == "aiogram_bot" else {0}
    await service.inject("hang for=0.5 agent=yes on=create")
    async with bot.running() as process:
        await process.watch(until(lambda: service.agents_started["Planned before"]))
        process.interrupt(signal.SIGTERM)
        process.interrupt(signal.SIGTERM)
        assert await process.end() in codes
    await complete(service)
    async with bot.running() as process:
        await chat.connect(process)
        await process.watch(chat.until(f"{place.message} completed: https://"))
        process.interrupt(signal.SIGTERM)
        assert await process.end() in codes
    assert service.agents_started == {"Planned before": 1}


async def test_refusals(bot: Program, chat: Chat, service: Emulator) -> None:
    """A 429 is waited out, other failures are repeated, and what can never be told ends the telling for good."""
    service.script(JobScript(duration=0))
    async with bot.running() as process:
        await chat.connect(process)
        chat.refusals[" completed: "] += ["blocked"]
        await chat.say(ANNA, "job", "Blocked")
        await process.watch(until(lambda: chat.refused))
        chat.refusals[" completed: "] += ["429", "500"]
        late = await chat.say(ANNA, "job", "Told late")
        await process.watch(chat.until(f"{late} completed: https://"))
        chat.refusals[" completed: "] += ["429"]
        ending = await chat.say(ANNA, "job", "Told amid the end of the bot")
        await process.watch(until(lambda: len(chat.refused) == 4))
        await process.stop(has_logged=True)
    assert [len(chat.refused), chat.too_early] == [4, []]
    async with bot.running() as process:
        await chat.connect(process)
        last = await chat.say(ANNA, "job", "Told after it")
        await process.watch(chat.until(f"{ending} completed: https://", f"{last} completed: https://"))
        await process.stop()
    assert sum(" completed: " in text for text in chat.texts) == 3


async def test_lost_replies(recipe: str, bot: Program, chat: Chat, service: Emulator) -> None:
    """A reply that the chat's server does not accept ends no bot and no job, whose end is told all the same."""
    async with bot.running() as process:
        await chat.connect(process)
        for refusal in ("500", "blocked"):
            if recipe != "discord_bot":  # its replies are answers, which are taken
                chat.refusals["is noted"] += [refusal]
            await chat.say(ANNA, "job", refusal)
        await process.watch(until(lambda: service.agents_started.total() == 2))
        await complete(service)
        await process.watch(chat.wait_for(lambda: sum(" completed: " in text for text in chat.texts) == 2))
        await process.stop(has_logged=True)
    assert service.agents_started == {"500": 1, "blocked": 1}


async def test_end_after_a_kill(bot: Program, chat: Chat, service: Emulator) -> None:
    """An end that could not be told before a kill is told after it as what it is."""
    service.script(JobScript(duration=0, outcome="failed"))
    async with bot.running() as process:
        await chat.connect(process)
        chat.refusals[" failed: "] += ["500"] * 99
        key = await chat.say(ANNA, "job", "Fail")
        await process.watch(until(lambda: chat.refused))
        process.interrupt(signal.SIGKILL)
        await process.end()
    chat.refusals.clear()
    async with bot.running() as process:
        await chat.connect(process)
        await process.watch(chat.until(f"{key} failed: no change"))
        await process.stop()
    assert service.agents_started == {"Fail": 1}


@pytest.mark.parametrize("recipe", ["aiogram_bot", "python_telegram_bot"], indirect=True)
async def test_telegram(bot: Program, chat: TelegramApi, service: Emulator) -> None:
    """A command names its bot, is followed by lines, is edited; its group becomes a supergroup."""
    async with bot.running() as process:
        key = await chat.write(ANNA, "/job@jobs_bot\n\n  two lines\n")
        await process.watch(chat.until(f"{key} is noted"))
        await chat.edit("/job@jobs_bot Edited")
        await chat.write(ANNA, "/job@another_bot Of another bot")
        chat.refusals[" completed: "] += ["moved"]
        await complete(service)
        await process.watch(chat.until(f"{key} completed: https://"))
        await process.stop()
    assert chat.sent == {50: 1, -1001: 1}
    assert service.agents_started == {"\n  two lines\n": 1}


@pytest.mark.parametrize("recipe", ["aiogram_bot", "python_telegram_bot"], indirect=True)
async def test_commands_as_a_bot_ends(bot: Program, chat: TelegramApi, service: Emulator) -> None:
    """A command that comes as the bot ends is done and answered once, by this start or by the next one."""
    async with bot.running() as process:
        await chat.say(ANNA, "jobs")
        await process.watch(chat.until(Texts().none_listed()))
        process.interrupt(signal.SIGTERM)
        key = await chat.say(ANNA, "job", "At the end")
        assert await process.end() == 0
    async with bot.running() as process:
        await process.watch(chat.until(f"{key} is noted"))
        await chat.say(BEN, "jobs")
        await process.watch(chat.wait_for(lambda: chat.texts.count(Texts().none_listed()) == 2))
        await process.watch(until(lambda: service.agents_started["At the end"]))
        await process.stop()
    assert sum(f"{key} is noted" in text for text in chat.texts) == 1
    assert service.agents_started == {"At the end": 1}


@pytest.mark.parametrize("recipe", ["slack_bot"], indirect=True)
async def test_slack(bot: Program, chat: SlackApi, service: Emulator) -> None:
    """A mention stands anywhere, without a space, and with links; forged requests are refused."""
    sent = {
        "<@U1>Fix it": "Fix it",
        "<@U1>\n\nFix it": "\nFix it",
        "Please, <@U1> ask <@U2> &amp;lt; &lt;a&gt;": "Please, ask <@U2> &lt; <a>",
        "<@U1> <http://x.y|x.y> <mailto:a@b.c|a@b.c>": "x.y a@b.c",
        "<@U1> <https://x.y/z/guide.md|guide.md>": "guide.md (https://x.y/z/guide.md)",
        "<@U1> <https://x.y/?a=1&amp;b=2|a &gt; b> in <#C1|docs>": "a > b (https://x.y/?a=1&b=2) in <#C1|docs>",
    }
    async with bot.serving() as process:
        chat.app = process.address
        assert (await chat.post("{}", "application/json", secret="another"))[0] == 401
        async with ClientSession(process.address) as client:
            assert [await status(client, method) for method in ("GET", "PUT")] == [405] * 2
            assert await status(client, "POST", BytesIO(bytes(2_000_000))) == 413
        _, leaving = await half_a_body(process, "/slack/events")
        leaving.close()
        reader, waiting = await half_a_body(process, "/slack/events")
        keys = [await chat.mention(ANNA, text) for text in sent]
        await chat.mention(ANNA, "<@U1>")
        await process.watch(chat.until("What is to be done?", *(f"{key} is noted" for key in keys)))
        await process.watch(until(lambda: len(service.agents_started) == len(sent)))
        await process.stop()
        assert await reader.read() == b""
        waiting.close()
    assert service.agents_started == dict.fromkeys(sent.values(), 1)


async def status(client: ClientSession, method: str, body: object = b"") -> int:
    """Return the status of the answer to a request that is not Slack's."""
    async with client.request(method, "/slack/events", data=body) as response:
        return response.status


@pytest.mark.parametrize("recipe", ["discord_bot"], indirect=True)
async def test_discord(bot: Program, chat: DiscordApi, service: Emulator) -> None:
    """The end of a job mentions the user who asked for it, and nobody else."""
    async with bot.running() as process:
        key = await chat.say(ANNA, "job", "@everyone")
        await complete(service)
        await process.watch(chat.until(f"<@{ANNA}> {key} completed: https://"))
        await process.stop()
    assert chat.commands == ["job", "jobs", "cancel", "settle"]
    assert chat.pinged == [{"parse": [], "users": [ANNA]}]
