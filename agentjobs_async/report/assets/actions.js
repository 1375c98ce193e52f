/* What a live page can do about items: one in its panel, or all that the filter shows. */

const RETRY = {
  name: 'retry',
  words: 'Try again',
  states: new Set(['failed', 'rejected']),
  ofMany: (number) => `Start ${grouped(number)} agent${number === 1 ? '' : 's'}`,
};
const SEND_AGAIN = { name: 'send_again', words: 'Send again', states: new Set(['unknown']), risk: 'A second agent may start.' };
const ABANDON = { name: 'abandon', words: 'Abandon', states: new Set(['unknown']), risk: 'An agent may be at work.' };
const WITHDRAW = { name: 'withdraw', words: 'Withdraw', states: new Set(['planned']) };
const ACTIONS = [RETRY, SEND_AGAIN, ABANDON, WITHDRAW];
const ACTIONS_OF_ONE = [
  { ...RETRY, states: new Set([...RETRY.states, 'archived']) },
  SEND_AGAIN,
  ABANDON,
  WITHDRAW,
  { ...RETRY, states: new Set(['abandoned']), risk: SEND_AGAIN.risk }, // never among many: a person gave it up
  { ...ABANDON, states: new Set(['active']), risk: 'Its agent may be at work.' },
];
const AGAIN = 'planned again, for a worker or agentjobs resume';
const DONE = { retry: AGAIN, send_again: AGAIN, abandon: 'abandoned', withdraw: 'withdrawn, and not sent', set_job: 'given its job' };
const MOST_REASONS = 5; // a page has room for a few lines
const ROWS_AT_ONCE = 50_000; // in one request: a server refuses a body of more than 1 MiB

class Actions {
  constructor(page) {
    this.live = page;
    this.report = page.report;
    this.indexes = {}; // of the rows shown, by the action that is offered for them
    this.buttons = ACTIONS.map((action) => {
      const made = this.button(action);
      made.addEventListener('click', () => {
        const indexes = this.indexes[action.name];
        this.ask(made, action, manyWords(action, indexes.length), this.named(indexes));
      });
      return made;
    });
    this.question = element('dialog', { role: 'alertdialog', 'aria-labelledby': 'question' });
    this.question.addEventListener('mousedown', (event) => {
      if (event.target === this.question) event.preventDefault(); // the focus stays at No
    });
    document.body.append(this.question);
    this.bulk = byId('actions');
    this.bulk.append(element('span', {}, 'With the items shown:'), ...this.buttons);
    document.querySelector('.toolbar').after(this.bulk); // the toolbar stays in sight, at a height that the table knows
    this.report.panel.more = (index) => this.ofRow(index);
    const refresh = this.report.refresh.bind(this.report);
    this.report.refresh = () => {
      refresh();
      this.offer();
    };
  }

  button({ name, risk, words }) {
    return element('button', { type: 'button', 'data-action': name, className: risk ? 'danger' : '' }, words);
  }

  /* What an action names: the rows with these indexes as the page shows them, and the journal that they are of. */
  named(indexes) {
    const { store } = this.report;
    return { journal: store.head.identity, rows: indexes.map((index) => [store.number[index], store.state[index], store.tries[index]]) };
  }

  /* Offer what can be done about the rows shown. */
  offer() {
    const { store, shown, filter } = this.report;
    const isArchived = (index) => store.state[index] === 'archived';
    // A person put them away: they are started again where they alone are asked for.
    const isArchivedChosen = filter.state === 'archived' || (filter.reason !== '' && shown.every(isArchived));
    const isMeant = (index, action) => action.states.has(store.state[index]) || (action === RETRY && isArchivedChosen && isArchived(index));
    this.indexes = Object.fromEntries(ACTIONS.map((action) => [action.name, shown.filter((index) => isMeant(index, action))]));
    const focused = this.buttons.find((button) => button === document.activeElement);
    ACTIONS.forEach((action, index) => {
      const { length } = this.indexes[action.name];
      this.buttons[index].hidden = !length;
      this.buttons[index].textContent = action.ofMany?.(length) ?? `${action.words} (${grouped(length)})`;
    });
    this.bulk.hidden = this.buttons.every(({ hidden }) => hidden);
    if (focused?.hidden) byId('search').focus();
  }

  /* The buttons for one row. The panel makes them anew once an action has changed the row. */
  ofRow(index) {
    const { store } = this.report;
    const state = store.state[index];
    const named = this.named([index]);
    const offered = ACTIONS_OF_ONE.filter((action) => action.states.has(state));
    if (!offered.length) return [];
    const buttons = offered.map((action) => {
      const made = this.button(action);
      made.addEventListener('click', () => {
        if (action.risk) this.ask(made, action, `${action.words}: ${visible(store.key[index])}`, named);
        else this.act(action.name, named, made);
      });
      return made;
    });
    const parts = [element('h3', {}, 'Do it here'), element('div', { className: 'buttons' }, ...buttons)];
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

  /* Ask in the other half of the window: there, the second click of a double click is no answer. Escape is No. */
  ask(button, { name, risk }, words, named) {
    if (button.ariaDisabled === 'true') return;
    const { question } = this;
    const no = element('button', { type: 'button' }, 'No');
    const yes = element('button', { type: 'button', className: risk ? 'danger sure' : 'sure' }, 'Yes, do it');
    for (const answer of [no, yes]) answer.addEventListener('click', () => question.close());
    yes.addEventListener('click', () => this.act(name, named, button));
    question.onclose = () => { if (!button.isConnected) byId('panel').focus(); };
    question.replaceChildren(element('p', { id: 'question' }, `${words}? ${risk ?? ''}`), no, yes);
    question.classList.toggle('low', button.getBoundingClientRect().top < innerHeight / 2);
    question.showModal();
  }

  async act(action, { journal, rows }, button, job) {
    if (button.ariaDisabled === 'true') return;
    button.ariaDisabled = 'true'; // it keeps the focus
    const outcome = { done: 0, refused: 0, reasons: [] };
    let fault = '';
    try {
      for (let start = 0; start < rows.length && !fault; start += ROWS_AT_ONCE) {
        const numbers = {};
        for (const [number, state, tries] of rows.slice(start, start + ROWS_AT_ONCE)) (numbers[state] ??= []).push([number, tries]);
        const response = await this.send({ action, journal, rows: numbers, job });
        if (!response.ok) fault = (await response.text()) || `The server answered with status ${response.status}.`;
        else add(outcome, await response.json());
      }
    } catch {
      fault = 'The server can’t be reached.';
    }
    const known = fault && !outcome.done && !outcome.refused ? [] : [said(action, outcome)];
    this.say([...known, fault].join(' ').trim(), !fault);
    button.ariaDisabled = String(!fault && !outcome.refused && !this.buttons.includes(button)); // a row's is made anew
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

const manyWords = (action, number) => action.ofMany?.(number) ?? `${action.words}: ${itemsText(number)}`;

const itemsText = (number) => `${grouped(number)} item${number === 1 ? '' : 's'}`;

function said(action, { done, refused, reasons }) {
  const failures = refused ? [`${itemsText(refused)} refused: ${reasons.join('; ')}`] : [];
  return [`${itemsText(done)} ${DONE[action]}.`, ...failures].join(' ');
}

new Actions(live);
