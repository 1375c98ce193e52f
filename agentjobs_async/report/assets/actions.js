/* What a live page can do about items: one in its panel, or all that the filter shows. */

const ACTIONS = [
  { name: 'retry', words: 'Try again', states: new Set(['failed', 'rejected', 'archived']) },
  { name: 'send_again', words: 'Send again', states: new Set(['unknown']), risk: 'A second agent may start.' },
  { name: 'abandon', words: 'Abandon', states: new Set(['unknown']), risk: 'An agent may be at work.' },
];
const ACTIONS_OF_ONE = [
  ...ACTIONS,
  { ...ACTIONS[0], states: new Set(['abandoned']), risk: ACTIONS[1].risk }, // never among many: a person gave it up
  { ...ACTIONS[2], states: new Set(['active']), risk: 'Its agent may be at work.' },
];
const DONE = { retry: 'planned again', send_again: 'planned again', abandon: 'abandoned', set_job: 'given its job' };
const CONFIRMABLE_AFTER = 600; // ms in which a second click confirms nothing
const MOST_REASONS = 5; // of refusals: a page has room for a few lines
const ROWS_AT_ONCE = 50_000; // in one request: a server refuses a body of more than 1 MiB

class Actions {
  constructor(page) {
    this.live = page;
    this.report = page.report;
    this.places = {}; // of the rows shown, by the action that is offered for them
    this.buttons = ACTIONS.map((action) => {
      const made = element('button', { type: 'button', 'data-action': action.name });
      made.addEventListener('click', () => {
        const places = this.places[action.name];
        this.ask(made, this.asking, action, `${action.words}: ${itemsText(places.length)}`, this.named(places));
      });
      return made;
    });
    this.asking = element('div', { className: 'asking', 'aria-live': 'polite' });
    this.bulk = byId('actions');
    this.bulk.append(element('span', {}, 'With the items shown:'), ...this.buttons, this.asking);
    document.querySelector('.toolbar').after(this.bulk); // the toolbar stays in sight, at a height that the table knows
    this.report.panel.more = (place) => this.ofRow(place);
    addEventListener('keydown', (event) => {
      const asked = event.key === 'Escape' ? [...document.querySelectorAll('.asking:not(:empty)')].at(-1) : undefined;
      if (!asked) return;
      event.stopPropagation(); // the panel stays open
      asked.lastChild.click(); // No
    }, true);
    const refresh = this.report.refresh.bind(this.report);
    this.report.refresh = () => {
      refresh();
      this.offer();
    };
  }

  /* What an action names: the rows at these places as the page shows them, and the journal that they are of. */
  named(places) {
    const { store } = this.report;
    return { journal: store.head.identity, rows: places.map((place) => [store.number[place], store.state[place]]) };
  }

  /* Offer what can be done about the rows shown. Another filter shows others than a question was asked about. */
  offer() {
    const { store, shown, filter } = this.report;
    this.places = Object.fromEntries(ACTIONS.map(({ name, states }) => [name, shown.filter((place) => states.has(store.state[place]))]));
    ACTIONS.forEach(({ name, words }, index) => {
      this.buttons[index].hidden = !this.places[name].length;
      this.buttons[index].textContent = `${words} (${grouped(this.places[name].length)})`;
    });
    const asked = JSON.stringify(filter);
    if (asked !== this.filter) this.asking.replaceChildren();
    this.filter = asked;
    this.bulk.hidden = !this.asking.children.length && this.buttons.every(({ hidden }) => hidden);
  }

  /* The buttons for one row. The panel makes them anew when the row, its state or its job has changed. */
  ofRow(place) {
    const state = this.report.store.state[place];
    const named = this.named([place]);
    const offered = ACTIONS_OF_ONE.filter((action) => action.states.has(state));
    if (!offered.length) return [];
    const asking = element('div', { className: 'asking', 'aria-live': 'polite' });
    const buttons = offered.map((action) => {
      const made = element('button', { type: 'button', 'data-action': action.name }, action.words);
      made.addEventListener('click', () => {
        if (action.risk) this.ask(made, asking, action, action.words, named);
        else this.act(action.name, named, made);
      });
      return made;
    });
    const parts = [element('h3', {}, 'Do it here'), element('div', { className: 'buttons' }, ...buttons), asking];
    if (state === 'unknown') parts.push(this.jobForm(named));
    return [element('section', { className: 'do' }, ...parts)];
  }

  jobForm(named) {
    const input = element('input', { type: 'text', placeholder: 'JOB or PROJECT/JOB', 'aria-label': 'The job that you found', autocomplete: 'off', spellcheck: 'false' });
    const button = element('button', { type: 'submit' }, 'It has this job');
    const form = element('form', { className: 'found' }, input, button);
    form.addEventListener('submit', (event) => {
      event.preventDefault();
      if (input.value.trim() !== '') this.act('set_job', named, button, input.value.trim());
    });
    return form;
  }

  /* Ask, below the buttons and not at once to be answered, so that a double click is no answer. It is about what is named now. */
  ask(button, asking, { name, risk }, words, named) {
    const yes = element('button', { type: 'button', className: 'sure', disabled: true }, 'Yes, do it');
    const no = element('button', { type: 'button' }, 'No');
    setTimeout(() => { yes.disabled = false; }, CONFIRMABLE_AFTER);
    for (const answer of [yes, no]) answer.addEventListener('click', async () => {
      button.focus(); // the answer goes
      if (answer === yes) await this.act(name, named, yes);
      asking.replaceChildren();
    });
    asking.replaceChildren(element('span', {}, `${words}? ${risk ?? ''}`), yes, no);
  }

  async act(action, { journal, rows }, button, job) {
    button.disabled = true;
    const outcome = { done: 0, refused: 0, reasons: [] };
    let fault = '';
    try {
      for (let start = 0; start < rows.length && !fault; start += ROWS_AT_ONCE) {
        const numbers = {};
        for (const [number, state] of rows.slice(start, start + ROWS_AT_ONCE)) (numbers[state] ??= []).push(number);
        const response = await this.send({ action, journal, rows: numbers, job });
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

const itemsText = (number) => `${grouped(number)} item${number === 1 ? '' : 's'}`;

function said(action, { done, refused, reasons }) {
  const refusal = refused ? [`${itemsText(refused)} refused: ${reasons.join('; ')}`] : [];
  return [`${itemsText(done)} ${DONE[action]}.`, ...refusal].join(' ');
}

new Actions(live);
