/* The table: only the rows in sight are elements, however many there are. */

const COLUMNS = [
  { name: 'state', title: 'State', value: (store, index) => store.head.order.indexOf(store.state[index]) },
  { name: 'key', title: 'Key', value: (store, index) => store.key[index] },
  { name: 'prompt', title: 'Prompt', value: (store, index) => store.prompt[index] ?? '' },
  { name: 'project', title: 'Project', value: (store, index) => store.project[index] ?? '' },
  { name: 'begun', title: 'Started', value: (store, index) => store.begun(index) ?? Infinity },
  { name: 'age', title: 'Duration', value: (store, index) => store.age(index) ?? Infinity },
  { name: 'detail', title: 'Reason, pull request or job', value: (store, index) => store.detail(index) },
];
const SPARE_ROWS = 12; // above and below those in sight, so that scrolling shows no gap
const MOST_PRINTED = 2000; // rows

class Table {
  constructor(store, open) {
    this.store = store;
    this.open = open;
    this.indexes = [];
    this.sorting = { name: null, falling: false };
    this.reason = '';
    this.current = 0; // the row that has the keyboard, by its position in what is shown
    this.table = byId('table');
    this.rows = byId('rows');
    byId('head').append(...COLUMNS.map((column) => this.headCell(column)));
    addEventListener('scroll', () => this.schedule(), { passive: true });
    addEventListener('resize', () => this.schedule());
    addEventListener('beforeprint', () => this.draw(0, Math.min(this.indexes.length, MOST_PRINTED)));
    addEventListener('afterprint', () => this.drawInSight());
    this.table.addEventListener('keydown', (event) => this.key(event));
    this.rows.addEventListener('click', (event) => this.click(event));
    this.rows.addEventListener('focusin', (event) => { this.current = Number(event.target.closest('.row').dataset.position); });
  }

  headCell(column) {
    const button = element('button', { type: 'button' }, column.title);
    button.addEventListener('click', () => {
      const same = this.sorting.name === column.name;
      this.sorting = same && this.sorting.falling ? { name: null, falling: false } : { name: column.name, falling: same };
      this.show(this.unsorted);
    });
    return element('div', { role: 'columnheader', className: `cell ${column.name}`, 'data-column': column.name }, button);
  }

  /* Show the rows at these indexes, sorted as chosen. */
  show(indexes, reason = this.reason) {
    this.reason = reason; // that is chosen: rows need not repeat it
    this.unsorted = indexes;
    this.table.hidden = !indexes.length;
    const current = this.indexes[this.current];
    const column = COLUMNS.find(({ name }) => name === this.sorting.name);
    this.indexes = column ? this.sorted(indexes, column) : this.store.byState(indexes);
    this.table.parentElement.classList.toggle('no-prompts', !this.store.hasPrompts);
    this.table.parentElement.classList.toggle('one-project', this.store.projects.size < 2);
    for (const cell of byId('head').children) {
      const chosen = cell.dataset.column === this.sorting.name;
      cell.setAttribute('aria-sort', chosen ? (this.sorting.falling ? 'descending' : 'ascending') : 'none');
    }
    this.table.setAttribute('aria-rowcount', String(indexes.length + 1));
    const moved = this.indexes.indexOf(current);
    this.current = Math.max(moved < 0 ? Math.min(this.current, indexes.length - 1) : moved, 0);
    this.drawInSight();
  }

  sorted(indexes, column) {
    const keyed = indexes.map((index) => [column.value(this.store, index), index]);
    const sign = this.sorting.falling ? -1 : 1;
    keyed.sort(([one, first], [other, second]) => (one < other ? -sign : one > other ? sign : first - second));
    return keyed.map(([, index]) => index);
  }

  schedule() {
    this.frame ??= requestAnimationFrame(() => {
      this.frame = null;
      this.drawInSight();
    });
  }

  drawInSight() {
    this.rowHeight = parseFloat(getComputedStyle(this.table).getPropertyValue('--row-height'));
    this.rows.style.height = `${this.indexes.length * this.rowHeight}px`;
    const above = Math.max(-this.rows.getBoundingClientRect().top, 0);
    const first = Math.max(Math.floor(above / this.rowHeight) - SPARE_ROWS, 0);
    const last = Math.ceil((above + innerHeight) / this.rowHeight) + SPARE_ROWS;
    this.draw(first, Math.min(last, this.indexes.length));
  }

  /* Draw some rows, and the one that has the keyboard. A row that was drawn before stays the same element. */
  draw(first, last) {
    const focused = this.rows.contains(document.activeElement) ? document.activeElement : null;
    const before = new Map(Array.from(this.rows.children, (row) => [row.dataset.index, row]));
    const positions = new Set([this.current]);
    for (let position = first; position < last; position += 1) positions.add(position);
    const rows = [...positions].filter((position) => position < this.indexes.length).sort((one, other) => one - other).map((position) => {
      const wanted = this.row(position);
      const row = before.get(wanted.dataset.index) ?? wanted;
      before.delete(wanted.dataset.index);
      renew(row, wanted);
      row.style.top = `${position * this.rowHeight}px`;
      return row;
    });
    before.forEach((row) => row.remove());
    rows.forEach((row, position) => {
      if (this.rows.children[position] !== row) this.rows.insertBefore(row, this.rows.children[position] ?? null);
    });
    if (focused && focused !== document.activeElement) { // it was moved by another order of the rows, or removed
      const target = focused.isConnected ? focused : this.rows.querySelector('[tabindex="0"]');
      target?.focus({ preventScroll: true });
    }
  }

  row(position) {
    const { store } = this;
    const index = this.indexes[position];
    const state = store.state[index];
    const fault = store.fault(index, this.reason);
    const detail = beginning(store.detail(index, this.reason));
    const link = fault === null ? linkTo(store.pr_link[index], store.pull_request[index]) : null;
    const cells = [
      element('span', { className: `badge state-${state}` }, state),
      keyParts(store.key[index]),
      beginning(store.prompt[index] ?? ''),
      element('span', { title: store.project[index] }, store.project[index] ?? ''),
      timeAgo(store.begun(index), store.head.made),
      spanText(store.age(index)),
      link ?? element('span', { title: detail }, detail),
    ];
    const classOf = (name) => (name === 'detail' && fault !== null ? 'cell detail error' : `cell ${name}`);
    return element('div', {
      className: index === this.opened ? 'row opened' : 'row',
      role: 'row',
      'aria-rowindex': String(position + 2),
      tabindex: position === this.current ? '0' : '-1',
      'data-position': String(position),
      'data-index': String(index),
    }, ...cells.map((cell, column) => element('div', { role: 'gridcell', className: classOf(COLUMNS[column].name) }, cell)));
  }

  click(event) {
    const row = event.target.closest('a') ? null : event.target.closest('.row');
    if (row) this.goTo(Number(row.dataset.position), true);
  }

  key(event) {
    const page = Math.max(Math.floor(innerHeight / this.rowHeight) - 4, 1);
    const last = this.indexes.length - 1;
    const steps = { ArrowDown: 1, ArrowUp: -1, PageDown: page, PageUp: -page, Home: -Infinity, End: Infinity };
    if (event.key in steps && event.target.closest('#rows')) {
      event.preventDefault();
      this.goTo(Math.min(Math.max(this.current + steps[event.key], 0), last), this.opened !== undefined);
    } else if ((event.key === 'Enter' || event.key === ' ') && event.target.closest('#rows')) {
      event.preventDefault();
      this.goTo(this.current, true);
    }
  }

  /* Bring a row into sight and put the keyboard there; open it if wanted. */
  goTo(position, opens) {
    if (position < 0 || position >= this.indexes.length) return;
    this.current = position;
    if (opens) this.open(this.indexes[position]);
    const top = this.rows.getBoundingClientRect().top + position * this.rowHeight;
    const covered = document.querySelector('.toolbar').offsetHeight + byId('head').offsetHeight;
    if (top < covered) scrollBy(0, top - covered - 8);
    else if (top + this.rowHeight > innerHeight) scrollBy(0, top + this.rowHeight - innerHeight + 8);
    this.drawInSight();
    this.rows.querySelector(`[data-position="${position}"]`)?.focus({ preventScroll: true });
  }

  /* Put the keyboard on the row with an index; where that is not shown, on the current one; without rows, into the search. */
  focus(index) {
    const position = this.indexes.indexOf(index);
    if (this.indexes.length) this.goTo(position < 0 ? this.current : position, false);
    else byId('search').focus();
  }

  /* Show that the panel of this row is open; undefined for none. */
  showOpened(index) {
    this.opened = index;
    this.drawInSight();
  }

  csv() {
    const { store } = this;
    const indexes = this.sorting.name === null ? this.unsorted : this.indexes;
    const fields = new Set(FIELD_COLUMNS.flatMap((column) => indexes.flatMap((index) => Object.keys(store[column][index] ?? {}))));
    const own = ITEM_COLUMNS.filter((name) => name !== 'prompt' || store.hasPrompts);
    const cell = (index, name) => (name.endsWith('_at') && store[name][index] !== null ? isoTime(store[name][index]) : store[name][index]);
    const lines = indexes.map((index) => {
      const found = new Map(FIELD_COLUMNS.flatMap((column) => Object.entries(store[column][index] ?? {})));
      return [...own.map((name) => cell(index, name)), ...Array.from(fields, (name) => found.get(name) ?? null)];
    });
    return [[...own, ...fields], ...lines].map((cells) => `${cells.map(csvCell).join(',')}\n`).join('');
  }
}
