/* What a live page can do about items: one in its panel, or all that the filter shows. */

const RETRIED = new Set(['failed', 'rejected', 'archived']);
const ACTIONS = [
  { name: 'retry', words: 'Try again', states: RETRIED },
  { name: 'send_again', words: 'Send again', states: new Set(['unknown']), risk: 'a second agent may start' },
  { name: 'abandon', words: 'Abandon', states: new Set(['unknown']), risk: 'an agent may be at work' },
];
const DONE = { retry: 'planned again', send_again: 'planned again', abandon: 'abandoned', set_job: 'given its job' };
const CONFIRMING = 5000; // ms in which a second click confirms
const MOST_REASONS = 5; // of refusals: a page has room for a few lines
const NUMBERS_AT_ONCE = 50_000; // rows in one request: a server refuses a body of more than 1 MiB

class Actions {
  constructor(page) {
    this.live = page;
    this.report = page.report;
    this.bulk = byId('actions');
    document.querySelector('.toolbar').after(this.bulk); // the toolbar stays in sight, at a height that the table knows
    this.report.panel.more = (place) => this.ofRow(place);
    const refresh = this.report.refresh.bind(this.report);
    this.report.refresh = () => {
      refresh();
      this.offer();
    };
  }

  /* The buttons for all rows shown. They stay as they are while their numbers do: one may be waiting for its second click. */
  offer() {
    const { store, shown } = this.report;
    const offered = ACTIONS.map((action) => ({ action, places: shown.filter((place) => action.states.has(store.state[place])) }))
      .filter(({ places }) => places.length);
    const now = offered.map(({ action, places }) => `${action.name} ${places.map((place) => store.number[place]).join()}`).join(';');
    if (now === this.offered) return;
    this.offered = now;
    this.bulk.hidden = !offered.length;
    this.bulk.replaceChildren(element('span', {}, 'With the items shown:'), ...offered.map(({ action, places }) => this.button(
      action, `${action.words} (${grouped(places.length)})`, () => places.map((place) => store.number[place]), true,
    )));
  }

  ofRow(place) {
    const { store } = this.report;
    const state = store.state[place];
    const number = () => [store.number[place]];
    const buttons = ACTIONS.filter((action) => action.states.has(state))
      .map((action) => this.button(action, action.words, number, action.risk !== undefined));
    if (state === 'active') buttons.push(this.button({ ...ACTIONS[2], risk: 'its agent may be at work' }, ACTIONS[2].words, number, true));
    if (!buttons.length) return [];
    const parts = [element('h3', {}, 'Do it here'), element('div', { className: 'buttons' }, ...buttons)];
    if (state === 'unknown') parts.push(this.jobForm(number));
    return [element('section', { className: 'do' }, ...parts)];
  }

  jobForm(number) {
    const input = element('input', { type: 'text', placeholder: 'JOB or PROJECT/JOB', 'aria-label': 'The job that you found', autocomplete: 'off', spellcheck: 'false' });
    const button = element('button', { type: 'submit' }, 'It has this job');
    const form = element('form', { className: 'found' }, input, button);
    form.addEventListener('submit', (event) => {
      event.preventDefault();
      if (input.value.trim() !== '') this.act('set_job', number(), button, input.value.trim());
    });
    return form;
  }

  /* A button; with `confirms`, the first click asks for a second one. */
  button(action, words, numbers, confirms) {
    const made = element('button', { type: 'button', 'data-action': action.name }, words);
    let asked = !confirms;
    made.addEventListener('click', () => {
      if (asked) {
        this.act(action.name, numbers(), made);
        return;
      }
      asked = true;
      made.classList.add('asking');
      made.textContent = `${words}: sure?${action.risk ? ` ${action.risk[0].toUpperCase()}${action.risk.slice(1)}.` : ''}`;
      setTimeout(() => {
        asked = false;
        made.classList.remove('asking');
        made.textContent = words;
      }, CONFIRMING);
    });
    return made;
  }

  async act(action, numbers, button, job) {
    button.disabled = true;
    const outcome = { done: 0, refused: 0, reasons: [] };
    let fault = '';
    try {
      for (let start = 0; start < numbers.length && !fault; start += NUMBERS_AT_ONCE) {
        const response = await this.send({ action, numbers: numbers.slice(start, start + NUMBERS_AT_ONCE), job });
        if (!response.ok) fault = (await response.text()) || `The server answered with status ${response.status}.`;
        else add(outcome, await response.json());
      }
    } catch {
      fault = 'The server can’t be reached.';
    }
    const known = fault && !outcome.done && !outcome.refused ? [] : [said(action, outcome)];
    this.say([...known, fault].join(' ').trim(), !fault);
    button.disabled = false;
  }

  /* Send an action; `job` is left out where it is undefined. */
  send(document) {
    const headers = { 'Content-Type': 'application/json' };
    if (this.live.token !== null) headers.Authorization = `Bearer ${this.live.token}`;
    return fetch('actions', { method: 'POST', headers, body: JSON.stringify(document) });
  }

  say(text, isGood) {
    const notice = byId('notice');
    notice.textContent = visible(text);
    notice.hidden = false;
    clearTimeout(this.saying);
    this.saying = setTimeout(() => { notice.hidden = true; }, isGood ? 4000 : 12_000);
  }
}

function add(outcome, { done, refused, reasons }) {
  outcome.done += done;
  outcome.refused += refused;
  outcome.reasons = [...new Set([...outcome.reasons, ...reasons])].slice(0, MOST_REASONS);
}

function said(action, { done, refused, reasons }) {
  const items = (number) => `${grouped(number)} item${number === 1 ? '' : 's'}`;
  return [`${items(done)} ${DONE[action]}.`, ...(refused ? [`${items(refused)} refused: ${reasons.join('; ')}`] : [])].join(' ');
}

new Actions(live);
