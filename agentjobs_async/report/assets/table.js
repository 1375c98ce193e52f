/* The table: only the rows in sight are elements, however many there are. */

const COLUMNS = [
  { name: 'state', title: 'State', value: (store, place) => store.head.order.indexOf(store.state[place]) },
  { name: 'key', title: 'Key', value: (store, place) => store.key[place] },
  { name: 'prompt', title: 'Prompt', value: (store, place) => store.prompt[place] ?? '' },
  { name: 'project', title: 'Project', value: (store, place) => store.project[place] ?? '' },
  { name: 'begun', title: 'Started', value: (store, place) => store.begun(place) ?? Infinity },
  { name: 'age', title: 'Duration', value: (store, place) => store.age(place) ?? Infinity },
  { name: 'detail', title: 'Reason or pull request', value: (store, place) => store.detail(place) },
];
const SPARE_ROWS = 12; // above and below those in sight, so that scrolling shows no gap
const MOST_PRINTED = 2000; // rows

class Table {
  constructor(store, open) {
    this.store = store;
    this.open = open;
    this.places = [];
    this.sorting = { name: null, falling: false };
    this.current = 0; // the row that has the keyboard, by its place in what is shown
    this.table = byId('table');
    this.rows = byId('rows');
    byId('head').append(...COLUMNS.map((column) => this.headCell(column)));
    addEventListener('scroll', () => this.schedule(), { passive: true });
    addEventListener('resize', () => this.schedule());
    addEventListener('beforeprint', () => this.draw(0, Math.min(this.places.length, MOST_PRINTED)));
    addEventListener('afterprint', () => this.drawInSight());
    this.table.addEventListener('keydown', (event) => this.key(event));
    this.rows.addEventListener('click', (event) => this.click(event));
    this.rows.addEventListener('focusin', (event) => { this.current = Number(event.target.closest('.row').dataset.index); });
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

  /* Show the rows at these places, sorted as chosen. */
  show(places) {
    this.unsorted = places;
    this.table.hidden = !places.length;
    const current = this.places[this.current];
    const column = COLUMNS.find(({ name }) => name === this.sorting.name);
    this.places = column ? this.sorted(places, column) : this.store.byState(places);
    this.table.parentElement.classList.toggle('no-prompts', !this.store.hasPrompts);
    for (const cell of byId('head').children) {
      const chosen = cell.dataset.column === this.sorting.name;
      cell.setAttribute('aria-sort', chosen ? (this.sorting.falling ? 'descending' : 'ascending') : 'none');
    }
    this.table.setAttribute('aria-rowcount', String(places.length + 1));
    const moved = this.places.indexOf(current);
    this.current = Math.max(moved < 0 ? Math.min(this.current, places.length - 1) : moved, 0);
    this.drawInSight();
  }

  sorted(places, column) {
    const keyed = places.map((place) => [column.value(this.store, place), place]);
    const sign = this.sorting.falling ? -1 : 1;
    keyed.sort(([one, first], [other, second]) => (one < other ? -sign : one > other ? sign : first - second));
    return keyed.map(([, place]) => place);
  }

  schedule() {
    this.frame ??= requestAnimationFrame(() => {
      this.frame = null;
      this.drawInSight();
    });
  }

  drawInSight() {
    this.rowHeight = parseFloat(getComputedStyle(this.table).getPropertyValue('--row-height'));
    this.rows.style.height = `${this.places.length * this.rowHeight}px`;
    const above = Math.max(-this.rows.getBoundingClientRect().top, 0);
    const first = Math.max(Math.floor(above / this.rowHeight) - SPARE_ROWS, 0);
    const last = Math.ceil((above + innerHeight) / this.rowHeight) + SPARE_ROWS;
    this.draw(first, Math.min(last, this.places.length));
  }

  /* Draw some rows, and the one that has the keyboard. A row that was drawn before stays the same element. */
  draw(first, last) {
    const focused = this.rows.contains(document.activeElement) ? document.activeElement : null;
    const before = new Map(Array.from(this.rows.children, (row) => [row.dataset.place, row]));
    const indexes = new Set([this.current]);
    for (let index = first; index < last; index += 1) indexes.add(index);
    const rows = [...indexes].filter((index) => index < this.places.length).sort((one, other) => one - other).map((index) => {
      const wanted = this.row(index);
      const row = before.get(wanted.dataset.place) ?? wanted;
      before.delete(wanted.dataset.place);
      renew(row, wanted);
      row.style.top = `${index * this.rowHeight}px`;
      return row;
    });
    before.forEach((row) => row.remove());
    rows.forEach((row, index) => {
      if (this.rows.children[index] !== row) this.rows.insertBefore(row, this.rows.children[index] ?? null);
    });
    if (focused && focused !== document.activeElement) { // it was moved by another order of the rows, or taken away
      const target = focused.isConnected ? focused : this.rows.querySelector('[tabindex="0"]');
      target?.focus({ preventScroll: true });
    }
  }

  row(index) {
    const { store } = this;
    const place = this.places[index];
    const state = store.state[place];
    const age = spanText(store.age(place));
    const cells = [
      element('span', { className: `badge state-${state}` }, state),
      visible(store.key[place]),
      beginning(store.prompt[place] ?? ''),
      store.project[place] ?? '',
      shortTime(store.begun(place)),
      state === 'active' && store.created_at[place] !== null ? `${age} so far` : age,
      (store.error[place] === null ? linkTo(store.pr_link[place]) : null) ?? beginning(store.detail(place)),
    ];
    return element('div', {
      className: place === this.opened ? 'row opened' : 'row',
      role: 'row',
      'aria-rowindex': String(index + 2),
      tabindex: index === this.current ? '0' : '-1',
      'data-index': String(index),
      'data-place': String(place),
    }, ...cells.map((cell, column) => element('div', { role: 'gridcell', className: `cell ${COLUMNS[column].name}${COLUMNS[column].name === 'detail' && store.error[place] !== null ? ' error' : ''}` }, cell)));
  }

  click(event) {
    const row = event.target.closest('a') ? null : event.target.closest('.row');
    if (row) this.goTo(Number(row.dataset.index), true);
  }

  key(event) {
    const page = Math.max(Math.floor(innerHeight / this.rowHeight) - 4, 1);
    const last = this.places.length - 1;
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
  goTo(index, opens) {
    if (index < 0 || index >= this.places.length) return;
    this.current = index;
    if (opens) this.open(this.places[index]);
    const top = this.rows.getBoundingClientRect().top + index * this.rowHeight;
    const covered = document.querySelector('.toolbar').offsetHeight + byId('head').offsetHeight;
    if (top < covered) scrollBy(0, top - covered - 8);
    else if (top + this.rowHeight > innerHeight) scrollBy(0, top + this.rowHeight - innerHeight + 8);
    this.drawInSight();
    this.rows.querySelector(`[data-index="${index}"]`)?.focus({ preventScroll: true });
  }

  /* Put the keyboard on the row at a place; where that is not shown, on the current one; without rows, into the search. */
  focus(place) {
    const index = this.places.indexOf(place);
    if (this.places.length) this.goTo(index < 0 ? this.current : index, false);
    else byId('search').focus();
  }

  /* Mark the row whose panel is open; undefined for none. */
  mark(place) {
    this.opened = place;
    this.drawInSight();
  }

  csv() {
    const { store } = this;
    const places = this.sorting.name === null ? this.unsorted : this.places;
    const contexts = new Set(places.flatMap((place) => Object.keys(store.context[place] ?? {})));
    const own = ITEM_COLUMNS.filter((name) => name !== 'prompt' || store.hasPrompts);
    const cell = (place, name) => (name.endsWith('_at') && store[name][place] !== null ? isoTime(store[name][place]) : store[name][place]);
    const lines = places.map((place) => {
      const context = new Map(Object.entries(store.context[place] ?? {}));
      return [...own.map((name) => cell(place, name)), ...Array.from(contexts, (name) => context.get(name) ?? null)];
    });
    return [[...own, ...contexts], ...lines].map((cells) => `${cells.map(csvCell).join(',')}\n`).join('');
  }
}
