/* Join the parts: what is chosen decides what is shown. A live page calls `report.apply` and `report.refresh`. */

class Report {
  constructor() {
    this.store = new Store();
    this.filter = { text: '', state: '', project: '', reason: '' };
    this.shown = []; // the indexes of the rows that the filter leaves
    this.table = new Table(this.store, (index) => this.open(index));
    this.panel = new Panel(this.store, (left) => {
      this.showOpened(undefined);
      if (left !== undefined) this.table.focus(left);
    });
    this.timeline = new Timeline(this.store, (index) => this.open(index));
    this.listen();
  }

  apply(part) { this.store.apply(part); }

  listen() {
    byId('outcomes').addEventListener('click', (event) => {
      const state = event.target.closest('button')?.dataset.state;
      if (state) this.choose({ state: state === this.filter.state ? '' : state });
    });
    byId('reasons').addEventListener('click', (event) => {
      const reason = event.target.closest('button')?.dataset.reason;
      if (reason) this.choose({ reason: reason === this.filter.reason ? '' : reason });
    });
    byId('search').addEventListener('input', (event) => this.choose({ text: event.target.value }));
    byId('state').addEventListener('change', (event) => this.choose({ state: event.target.value }));
    byId('project').addEventListener('change', (event) => this.choose({ project: event.target.value }));
    byId('clear').addEventListener('click', () => this.choose({ text: '', state: '', project: '', reason: '' }));
    byId('csv').addEventListener('click', () => download('agentjobs.csv', this.table.csv(), 'text/csv;charset=utf-8'));
    byId('theme').addEventListener('click', () => {
      const { dataset } = document.documentElement;
      const dark = dataset.theme ? dataset.theme === 'dark' : matchMedia('(prefers-color-scheme: dark)').matches;
      dataset.theme = dark ? 'light' : 'dark';
      this.drawCharts();
    });
    matchMedia('(prefers-color-scheme: dark)').addEventListener('change', () => this.drawCharts());
    byId('show-charts').addEventListener('click', () => {
      const isShown = byId('charts').classList.toggle('shown');
      byId('show-charts').setAttribute('aria-expanded', String(isShown));
      this.drawCharts();
    });
    addEventListener('click', ({ target }) => { if (target.matches('.copy')) copyCommand(target); });
    addEventListener('resize', () => this.drawChartsSoon());
    addEventListener('keydown', (event) => this.key(event));
  }

  key(event) {
    if (document.querySelector('dialog[open]')) return; // the keys are its own
    const typing = /^(INPUT|SELECT|TEXTAREA)$/.test(event.target.tagName);
    if (event.key === '/' && !typing) {
      event.preventDefault();
      byId('search').focus();
    } else if (event.key === 'Escape' && this.panel.isOpen) {
      event.preventDefault(); // a search would be cleared
      this.panel.close();
    } else if (event.key === 'ArrowDown' && event.target.id === 'search') {
      event.preventDefault();
      this.table.goTo(0, false);
    }
  }

  choose(changed) {
    Object.assign(this.filter, changed);
    this.refresh();
  }

  /* Show what is there now; a live page calls it after each change. */
  refresh() {
    const { store, filter } = this;
    if (byId('search').value !== filter.text) byId('search').value = filter.text;
    this.offer('state', store.head.order, filter.state);
    const projects = [...store.projects].sort();
    this.offer('project', projects, filter.project);
    byId('project').hidden = projects.length < 2;
    if (this.version !== store.version) {
      this.version = store.version;
      this.all = store.select({});
    }
    const { all } = this;
    const isFiltered = filter.text.trim() !== '' || filter.state !== '' || filter.project !== '' || filter.reason !== '';
    this.shown = isFiltered ? store.select(filter) : all;
    this.table.show(this.shown, filter.reason);
    const { figures } = store.head;
    if (figures) { // of all items, whatever the filter; a live page has those in its HTML until its server sends others
      showTiles(tilesOf(figures), filter.state);
      showReasons(figures.reasons, filter.reason);
      byId('total').textContent = figures.total;
    }
    if (store.head.standing) showStanding(store.head.standing);
    byId('made').textContent = fullTime(store.head.made);
    byId('count').textContent = isFiltered ? `${grouped(this.shown.length)} of ${grouped(all.length)}` : grouped(all.length);
    byId('clear').hidden = !isFiltered;
    byId('empty').hidden = this.shown.length > 0;
    update(byId('empty'), element('div', {}, this.emptyText()));
    if (this.panel.isOpen) this.panel.open(this.panel.index);
    this.drawChartsSoon();
  }

  emptyText() {
    if (this.all.length) return 'No item matches.';
    const address = shellWord(this.store.head.address);
    return commandToCopy('Plan some:', `agentjobs run --file prompts.jsonl --journal ${address}`);
  }

  offer(id, choices, chosen) {
    const select = byId(id);
    const wanted = choices.join('\n');
    if (select.dataset.choices !== wanted) {
      select.dataset.choices = wanted;
      select.replaceChildren(select.options[0], ...choices.map((value) => element('option', { value }, value)));
    }
    if (select.value !== chosen) select.value = chosen; // else a list that is open would lose what is about to be chosen
  }

  open(index) {
    this.panel.open(index);
    this.showOpened(index);
  }

  /* A panel that opens or closes beside the charts leaves them another width. */
  showOpened(index) {
    this.table.showOpened(index);
    this.drawChartsSoon();
  }

  /* After the table has been drawn: a search is quick however many jobs the charts have. */
  drawChartsSoon() {
    clearTimeout(this.charts);
    this.charts = setTimeout(() => this.drawCharts(), 150);
  }

  drawCharts() {
    clearTimeout(this.charts);
    if (!byId('charts').classList.contains('shown')) return;
    this.timeline.show(this.shown);
    drawHistogram(this.store, this.shown);
  }
}

/* Show the rows of a file; a browser that can't unpack them shows what stands in plain HTML. */
async function showFile(shown, text) {
  await readDocument(text, (part) => shown.apply(part));
  shown.refresh();
  shown.drawCharts(); // at once: drawn later, they would move rows that somebody is about to click
  document.documentElement.dataset.ready = 'true';
  shown.store.prepareSearch();
}

const report = (() => {
  const text = byId('data').content.textContent.trim(); // a live page gets its rows from its server
  if (text !== '' && !('DecompressionStream' in globalThis)) {
    byId('old').hidden = false;
    return null;
  }
  document.documentElement.classList.add('scripted');
  const made = new Report();
  if (text !== '') showFile(made, text);
  return made;
})();
