/* The panel of one row: what happened, the prompt, and then what to do. */

class Panel {
  constructor(store, closed) {
    this.store = store;
    this.closed = closed; // called with the index of the row whose panel had the keyboard
    this.panel = byId('panel');
    this.title = element('div');
    const close = element('button', { type: 'button', id: 'close', 'aria-label': 'Close' }, '×');
    close.addEventListener('click', () => this.close());
    this.record = element('div'); // what is known of the row
    this.doing = element('div');
    this.panel.append(element('div', { className: 'panel-head' }, this.title, close), this.record, this.doing);
    this.madeFor = ''; // the row, and what of it the buttons were made for
    this.more = () => []; // a live page adds its actions
  }

  get isOpen() { return !this.panel.hidden; }

  /* Show a row. Its buttons are made anew only when the row, its state, its job or its try changes: something may have been typed. */
  open(index) {
    const { store } = this;
    const state = store.state[index];
    const errorTitle = state === 'planned' || state === 'active' ? 'Last error' : 'Reason';
    const hadFocus = this.panel.contains(document.activeElement);
    this.panel.hidden = false;
    document.body.classList.add('with-panel');
    if (index !== this.index) { // it begins at its top, and so does its prompt
      this.record.replaceChildren();
      this.panel.scrollTop = 0;
    }
    update(this.title, element('div', {},
      element('span', { className: `badge state-${state}` }, state),
      element('h2', {}, ...breakable(visible(store.key[index])))));
    update(this.record, element('div', {},
      this.text(errorTitle, store.error[index], 'error'),
      this.link(index),
      this.facts(index),
      this.text('Prompt', store.prompt[index], 'prompt')));
    const madeFor = JSON.stringify([index, state, store.job_id[index], store.tries[index]]);
    if (madeFor !== this.madeFor) {
      this.madeFor = madeFor;
      this.doing.replaceChildren(...this.look(index), ...this.more(index), ...this.commands(index));
    }
    if (hadFocus && !this.panel.contains(document.activeElement)) this.panel.focus();
    this.index = index;
  }

  close() {
    const left = this.panel.contains(document.activeElement) ? this.index : undefined;
    this.panel.hidden = true;
    document.body.classList.remove('with-panel');
    this.index = undefined;
    this.closed(left);
  }

  text(title, text, kind) {
    if (text === null || text === '') return null;
    return element('section', {}, element('h3', {}, title), element('pre', { className: kind, tabindex: kind === 'prompt' ? '0' : null }, text));
  }

  link(index) {
    const anchor = linkTo(this.store.pr_link[index], this.store.pull_request[index]);
    return anchor && element('section', {}, element('h3', {}, 'Pull request'), anchor);
  }

  facts(index) {
    const { store } = this;
    const facts = [
      ['Project', store.project[index]],
      ['Job', store.job_id[index]],
      ['Planned', this.time(store.planned_at[index])],
      ['Create sent', this.time(store.sent_at[index])],
      ['Job created', this.time(store.created_at[index])],
      ['Last seen', this.time(store.seen_at[index])],
      ['Ended', this.time(store.ended_at[index])],
      [store.state[index] === 'active' ? 'Active for' : 'Duration', spanText(store.age(index))],
      ['Ends in', store.endsIn(index)],
      ['Polls', grouped(store.polls[index])],
      ['Try', grouped(store.tries[index])],
      ['Number', grouped(store.number[index])],
    ].filter(([, value]) => value !== null && value !== NONE);
    const list = element('dl', {}, ...facts.flatMap(([name, value]) => [element('dt', {}, name), element('dd', {}, value)]));
    return element('section', {}, list);
  }

  /* A time relative to now, and in UTC: on a phone, no title is seen. */
  time(time) {
    if (time === null) return null;
    return element('span', {}, timeAgo(time, this.store.head.made), element('span', { className: 'utc' }, ` ${fullTime(time)}`));
  }

  /* Where to look for the job of an unknown item: only then can it be settled. */
  look(index) {
    const { store } = this;
    if (store.state[index] !== 'unknown' || store.look[index] === null) return [];
    return [element('section', { className: 'look' }, element('h3', {}, 'First'), element('p', {}, store.look[index]))];
  }

  commands(index) {
    const { store } = this;
    const { address, service, commands } = store.head;
    const isReachable = store.job_id[index] !== null && !service.includes('--emulator'); // its jobs ended with it
    const token = isReachable ? jobToken(store.project[index], store.job_id[index]) : null;
    const values = { '{key}': store.key[index], '{journal}': address, '{service}': service, '{token}': token ?? '' };
    const shown = (commands[store.state[index]] ?? []).filter(([, words]) => token !== null || !words.includes('{token}'));
    if (!shown.length) return [];
    const title = store.state[index] === 'unknown' ? 'Then one of these, in a terminal' : 'In a terminal';
    const parts = shown.map(([what, words]) => commandToCopy(what, commandLine(words, values)));
    return [element('section', { className: 'commands' }, element('h3', {}, title), ...parts)];
  }
}

/* Return a command with a button that copies it, under the words for what it does. */
function commandToCopy(what, line) {
  const copy = element('button', { type: 'button', className: 'copy', 'aria-label': `Copy: ${what}` }, 'Copy');
  return element('div', { className: 'command' }, element('p', {}, what), element('div', { className: 'line' }, codeOf(line), copy));
}

/* Copy the command of a button, also of one that stands in the HTML. */
async function copyCommand(copy) {
  copy.textContent = (await copied(copy.parentElement.querySelector('code').textContent)) ? 'Copied' : 'Press Ctrl+C';
  setTimeout(() => { copy.textContent = 'Copy'; }, 2000);
}

/* Copy a text. A page that was opened as a file has no clipboard in some browsers: there the text is selected. */
async function copied(text) {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    const area = element('textarea', { readonly: '', className: 'offscreen' });
    area.value = text;
    document.body.append(area);
    area.select();
    const done = document.execCommand('copy');
    area.remove();
    return done;
  }
}
